# Images of Headrace: docker build --target broker|operator|spark .   (BuildKit, or buildah)
#
# With --build-context wheels=DIR everything comes from the wheels there, pip and the build backend included, and no index
# is asked: the same wheels on the same base make the same image. Without it, it comes from PyPI. Broker and operator are
# the same layers, which a node stores once; Headrace itself is the last and smallest of them.
ARG BASE=python:3.12-slim
# What Spark runs on; `java` installs a JRE of BASE's distribution. An image that has one, procps and tini may be named.
ARG SPARK_BASE=java

FROM scratch AS wheels

FROM ${BASE} AS java
RUN apt-get update \
 && apt-get install --yes --no-install-recommends default-jre-headless procps tini \
 && rm -rf /var/lib/apt/lists/* /var/log/*

# Nothing of the sources but what says what they need: these layers stay when Headrace changes.
FROM ${BASE} AS dependencies
# Builders may set the times of files: with this, byte code is checked against what its source says and not its age.
# Python would compile all of it anew at each start otherwise, and could not keep it.
ARG SOURCE_DATE_EPOCH=1767225600
# buildah keeps layers without asking whether what is mounted has changed: it asks whether this has.
ARG DEPENDENCIES=unknown
RUN --mount=type=bind,source=pyproject.toml,target=/src/pyproject.toml \
    --mount=type=bind,source=docker,target=/src/docker --mount=type=bind,from=wheels,target=/wheels \
    python3 /src/docker/install.py dependencies broker operator

FROM dependencies AS spark-dependencies
ARG SOURCE_DATE_EPOCH=1767225600 DEPENDENCIES=unknown
RUN --mount=type=bind,source=pyproject.toml,target=/src/pyproject.toml \
    --mount=type=bind,source=docker,target=/src/docker --mount=type=bind,from=wheels,target=/wheels \
    python3 /src/docker/install.py dependencies spark \
 && cd /opt/headrace && ln -s lib/python3.*/site-packages/pyspark spark && test -x spark/bin/spark-submit

FROM ${BASE} AS runtime
ARG SOURCE_DATE_EPOCH=1767225600 SOURCE=unknown VERSION=0 REVISION=unknown
COPY --from=dependencies /opt/headrace /opt/headrace
RUN --mount=type=bind,target=/src --mount=type=bind,from=wheels,target=/wheels python3 /src/docker/install.py project
LABEL org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" org.opencontainers.image.revision="${REVISION}"
ENV PATH=/opt/headrace/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
USER 10001:10001

FROM runtime AS broker
LABEL org.opencontainers.image.title="headrace-broker" \
      org.opencontainers.image.description="A broker of Headrace, and the command headrace"
ENTRYPOINT ["headrace-broker"]

FROM runtime AS operator
LABEL org.opencontainers.image.title="headrace-operator" \
      org.opencontainers.image.description="The operator of Headrace, and the command headrace"
ENTRYPOINT ["headrace-operator"]

FROM ${SPARK_BASE} AS spark
ARG SOURCE_DATE_EPOCH=1767225600 SOURCE=unknown VERSION=0 REVISION=unknown
LABEL org.opencontainers.image.title="headrace-spark" \
      org.opencontainers.image.description="Spark with format(\"headrace\"), for drivers and executors on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" org.opencontainers.image.revision="${REVISION}"
COPY --from=spark-dependencies /opt/headrace /opt/headrace
# Hadoop asks for the user's name.
RUN --mount=type=bind,target=/src --mount=type=bind,from=wheels,target=/wheels python3 /src/docker/install.py project \
 && install -m 755 /src/examples/spark/kubernetes/entrypoint.sh /opt/headrace/bin/spark-entrypoint \
 && echo "spark:x:185:0:spark:/tmp:/bin/false" >> /etc/passwd
COPY examples/spark/*.py /opt/jobs/
ENV PATH=/opt/headrace/bin:/opt/headrace/spark/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp \
    SPARK_HOME=/opt/headrace/spark PYSPARK_PYTHON=/opt/headrace/bin/python PYSPARK_DRIVER_PYTHON=/opt/headrace/bin/python
WORKDIR /tmp
USER 185:0
ENTRYPOINT ["tini", "--", "spark-entrypoint"]
