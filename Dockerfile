# dagveil with the studio, PostgreSQL and DuckDB: docker build -t dagveil .
# docker run --rm --network none -v "$PWD:/data" dagveil discover rows.csv --schema schema.toml --epsilon 1 -o out
FROM python:3.13-slim
COPY pyproject.toml README.md LICENSE /src/
COPY src /src/src
RUN pip install --no-cache-dir "/src[studio,postgres,duckdb,frames,graphs]" \
    && apt-get update && apt-get install -y --no-install-recommends openssh-client && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home dagveil && mkdir /data && chown dagveil /data
USER dagveil
WORKDIR /data
# the ledger lies beside the data, not in the container: it must outlive it
ENV DAGVEIL_LEDGER=/data/ledger.sqlite
ENTRYPOINT ["dagveil"]
CMD ["doctor"]
