# Reads result.json and evidence.json of dagveil into R: source("dagveil.R").
# Needs the package jsonlite; igraph, bnlearn, or graph (for pcalg) where they are asked for.

# A result: its nodes, its family ("cpdag", "mpdag" or "pag"), a data frame of edges, and what was promised.
read_dagveil_result <- function(path) {
  content <- .read_dagveil(path, "dagveil-result")
  edges <- content$graph$edges
  text <- function(name) vapply(edges, function(edge) as.character(edge[[name]]), "")
  number <- function(name) {
    vapply(edges, function(edge) if (is.null(edge[[name]])) NA_real_ else as.numeric(edge[[name]]), 0)
  }
  list(
    nodes = as.character(unlist(content$graph$nodes)),
    family = content$graph$family,
    edges = data.frame(
      source = text("source"), target = text("target"), kind = text("kind"),
      confidence = number("confidence"), stringsAsFactors = FALSE
    ),
    dataset = content$receipt$dataset,
    epsilon = .read_fraction(content$receipt$epsilon),
    delta = .read_fraction(content$receipt$delta)
  )
}

# Arcs of a result: an undirected edge is two arcs, one each way.
dagveil_arcs <- function(result) {
  if (result$family == "pag") stop("this graph is a PAG, whose marks are no arcs; dagveil_marks() gives them to pcalg")
  edges <- result$edges
  back <- edges[edges$kind == "undirected", , drop = FALSE]
  data.frame(
    from = c(edges$source, back$target), to = c(edges$target, back$source),
    kind = c(edges$kind, back$kind), confidence = c(edges$confidence, back$confidence),
    stringsAsFactors = FALSE
  )
}

# Adjacency matrix: 1 in row i and column j for an arc from i to j.
dagveil_matrix <- function(result) {
  size <- length(result$nodes)
  matrix <- base::matrix(0L, size, size, dimnames = list(result$nodes, result$nodes))
  arcs <- dagveil_arcs(result)
  matrix[cbind(match(arcs$from, result$nodes), match(arcs$to, result$nodes))] <- 1L
  matrix
}

# Marks at the ends of edges, in pcalg's coding amat.pag: in row i and column j the mark at j of the edge from i to j,
# 0 without an edge, 1 for a circle, 2 for an arrowhead, 3 for a tail. For instance pcalg::plotAG(dagveil_marks(result)).
dagveil_marks <- function(result) {
  size <- length(result$nodes)
  marks <- base::matrix(0L, size, size, dimnames = list(result$nodes, result$nodes))
  ends <- list(
    directed = c(3L, 2L), undirected = c(3L, 3L), bidirected = c(2L, 2L),
    "half-directed" = c(1L, 2L), open = c(1L, 1L), "half-open" = c(1L, 3L)
  )
  for (row in seq_len(nrow(result$edges))) {
    edge <- result$edges[row, ]
    marks[edge$target, edge$source] <- ends[[edge$kind]][1]
    marks[edge$source, edge$target] <- ends[[edge$kind]][2]
  }
  marks
}

as_igraph_dagveil <- function(result) {
  igraph::graph_from_data_frame(dagveil_arcs(result), directed = TRUE, vertices = data.frame(name = result$nodes))
}

as_bnlearn_dagveil <- function(result) {
  network <- bnlearn::empty.graph(result$nodes)
  arcs <- as.matrix(dagveil_arcs(result)[, c("from", "to")])
  if (nrow(arcs) > 0) bnlearn::arcs(network) <- arcs
  network
}

# A graphNEL, which pcalg's functions take: for instance pcalg::shd. For a PAG see dagveil_marks.
as_pcalg_dagveil <- function(result) {
  loadNamespace("graph")
  methods::as(dagveil_matrix(result), "graphNEL")
}

# Tables of counts in evidence, by their columns: noisy estimates as arrays, with the standard error of each cell as an
# attribute. Interactions and moments are read by `dagveil tables evidence.json --columns a,b -o pair.csv` and read.csv.
read_dagveil_counts <- function(path) {
  content <- .read_dagveil(path, "dagveil-evidence")
  counted <- Filter(function(release) release$type == "counts" && length(release$columns) > 0, content$releases)
  if (length(counted) == 0) {
    stop("no table of counts was released; `dagveil tables evidence.json --columns a,b -o pair.csv` puts one together")
  }
  names(counted) <- vapply(counted, function(release) paste(unlist(release$columns), collapse = ", "), "")
  lapply(counted, function(release) {
    lattice <- as.numeric(release$lattice)
    shape <- as.integer(unlist(release$shape))
    values <- as.numeric(unlist(release$values)) / lattice
    # the file is in row-major order, R's arrays are not
    table <- aperm(array(values, rev(shape)), rev(seq_along(shape)))
    names(dim(table)) <- as.character(unlist(release$columns))
    attr(table, "standard_error") <- sqrt(.read_fraction(release$variance)) / lattice
    table
  })
}

.read_dagveil <- function(path, format) {
  content <- jsonlite::fromJSON(path, simplifyVector = FALSE)
  if (!identical(content$format, format)) stop("this JSON is not a ", format, "; give a file that dagveil wrote")
  content
}

.read_fraction <- function(text) {
  parts <- as.numeric(strsplit(as.character(text), "/", fixed = TRUE)[[1]])
  if (length(parts) == 2) parts[1] / parts[2] else parts
}
