# Images of Headrace: docker build --target broker|operator|spark .   (BuildKit, or buildah)
#
# What is installed comes from the wheels in WHEELS where there are any, and no index is asked then: the same wheels on
# the same base make the same image. Where there are none, it comes from PyPI. Broker and operator are the same layers,
# which a node stores once.
ARG BASE=python:3.12-slim
# What Spark runs on; `java` installs a JRE of BASE's distribution. An image that has one, procps and tini may be named.
ARG SPARK_BASE=java

FROM ${BASE} AS java
RUN apt-get update \
 && apt-get install --yes --no-install-recommends default-jre-headless procps tini \
 && rm -rf /var/lib/apt/lists/* /var/log/*

# pip runs from its own wheel where there are wheels: a base need not have it, and no image gets it.
FROM ${BASE} AS packages
ARG WHEELS=build/wheels
# buildah keeps layers without asking whether what is mounted has changed: it asks whether this has.
ARG SOURCE=unknown
RUN --mount=type=bind,target=/src cd /src && python3 -m venv --without-pip /opt/headrace \
 && if [ -d "$WHEELS" ]; \
    then PYTHONPATH=$(echo "$WHEELS"/pip-*.whl); export PYTHONPATH; set -- --no-index --find-links "$WHEELS" headrace; \
    else set -- .; \
    fi \
 && python3 -m pip --python /opt/headrace/bin/python install --no-cache-dir "$@[broker,operator]"

FROM packages AS spark-packages
ARG WHEELS=build/wheels
RUN --mount=type=bind,target=/src cd /src \
 && if [ -d "$WHEELS" ]; \
    then PYTHONPATH=$(echo "$WHEELS"/pip-*.whl); export PYTHONPATH; set -- --no-index --find-links "$WHEELS" headrace; \
    else set -- .; \
    fi \
 && python3 -m pip --python /opt/headrace/bin/python install --no-cache-dir "$@[spark]" \
 && cd /opt/headrace && ln -s lib/python3.*/site-packages/pyspark spark && test -x spark/bin/spark-submit

FROM ${BASE} AS runtime
ARG VERSION=0 REVISION=unknown
LABEL org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" org.opencontainers.image.revision="${REVISION}"
COPY --from=packages /opt/headrace /opt/headrace
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
ARG VERSION=0 REVISION=unknown
LABEL org.opencontainers.image.title="headrace-spark" \
      org.opencontainers.image.description="Spark with format(\"headrace\"), for drivers and executors on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" org.opencontainers.image.revision="${REVISION}"
COPY --from=spark-packages /opt/headrace /opt/headrace
COPY examples/spark/*.py /opt/jobs/
COPY examples/spark/kubernetes/entrypoint.sh /opt/headrace/bin/spark-entrypoint
# Hadoop asks for the user's name.
RUN chmod 755 /opt/headrace/bin/spark-entrypoint && echo "spark:x:185:0:spark:/tmp:/bin/false" >> /etc/passwd
ENV PATH=/opt/headrace/bin:/opt/headrace/spark/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp \
    SPARK_HOME=/opt/headrace/spark PYSPARK_PYTHON=/opt/headrace/bin/python PYSPARK_DRIVER_PYTHON=/opt/headrace/bin/python
WORKDIR /tmp
USER 185:0
ENTRYPOINT ["tini", "--", "spark-entrypoint"]
