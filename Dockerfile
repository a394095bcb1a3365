# The image of the chart's workers and of Dagster's parts: this package, and nothing of yours yet. Build your own on top:
#   FROM orchestration-queue:0.2.0
#   COPY pipeline.py /app/
# Git is not in its build: --build-arg COMMIT="$(git describe --always --dirty --abbrev=12 --exclude='*')" has
# `oq --version` print the commit.
FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE hatch_build.py ./
COPY lua lua
COPY tools tools
COPY orchestration_queue orchestration_queue
COPY pyspark_orchestration_queue pyspark_orchestration_queue
COPY pyspark_orchestration_queue_chasquimq pyspark_orchestration_queue_chasquimq
COPY pyspark_orchestration_queue_qless pyspark_orchestration_queue_qless
# The Spark of requirements/, and of the chart's Connect server. Without Spark tasks, build with --build-arg SPARK= to save
# some 500 MB.
ARG SPARK=4.3.0
ARG COMMIT=
RUN if [ -n "$COMMIT" ]; then echo "$COMMIT" > commit.txt; fi
RUN pip install --no-cache-dir --prefix=/install \
    ".[cli,dagster,http,msgpack,otel,prometheus${SPARK:+,spark}]" ${SPARK:+pyspark==$SPARK} dagster-webserver dagster-postgres

FROM python:3.11-slim
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /tmp oq
COPY --from=build /install /usr/local
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
USER 10001
ENTRYPOINT ["oq"]
CMD ["--help"]
