# Reads result.json and evidence.json of dagveil into R: source("dagveil.R").
# Needs the package jsonlite; igraph, bnlearn, or graph (for pcalg) where they are asked for.

# A result: its nodes, a data frame of edges, and what was promised.
read_dagveil_result <- function(path) {
  content <- .read_dagveil(path, "dagveil-result")
  edges <- content$graph$edges
  text <- function(name) vapply(edges, function(edge) as.character(edge[[name]]), "")
  number <- function(name) {
    vapply(edges, function(edge) if (is.null(edge[[name]])) NA_real_ else as.numeric(edge[[name]]), 0)
  }
  list(
    nodes = as.character(unlist(content$graph$nodes)),
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
  edges <- result$edges
  if (any(!edges$kind %in% c("directed", "undirected"))) {
    stop("this graph is a PAG, whose marks are no arcs; `dagveil export result.json --to amat` writes pcalg's matrix")
  }
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

as_igraph_dagveil <- function(result) {
  igraph::graph_from_data_frame(dagveil_arcs(result), directed = TRUE, vertices = data.frame(name = result$nodes))
}

as_bnlearn_dagveil <- function(result) {
  network <- bnlearn::empty.graph(result$nodes)
  bnlearn::arcs(network) <- as.matrix(dagveil_arcs(result)[, c("from", "to")])
  network
}

# A graphNEL, which pcalg's functions take: for instance pcalg::shd.
as_pcalg_dagveil <- function(result) {
  methods::as(dagveil_matrix(result), "graphNEL")
}

# Tables of counts in evidence: noisy estimates as arrays, with the standard error of each cell as an attribute.
# Interactions and moments are read by `dagveil tables evidence.json --columns a,b -o pair.csv` and read.csv.
read_dagveil_counts <- function(path) {
  content <- .read_dagveil(path, "dagveil-evidence")
  counted <- Filter(function(release) release$type == "counts" && length(release$columns) > 0, content$releases)
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
