#!/bin/bash
# What runs in the pods that Spark makes on Kubernetes: `driver` and `executor` with what Spark tells each by its
# arguments and its environment; anything else as it is. PySpark from PyPI has all of Spark but this.
set -euo pipefail

role=${1:-}
case "$role" in
  driver)
    shift
    exec "$SPARK_HOME/bin/spark-submit" --deploy-mode client \
      --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "$@"
    ;;
  executor)
    # SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1 and so on: one option each, in this order.
    options=()
    while number=${#options[@]} && name="SPARK_JAVA_OPT_$number" && [[ -v $name ]]; do options+=("${!name}"); done
    exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" "${options[@]}" -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" \
      -cp "${SPARK_CONF_DIR:+$SPARK_CONF_DIR:}$SPARK_HOME/jars/*" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
  *)
    exec "$@"
    ;;
esac
