package fields

// probeRules are about probes and hooks.
func probeRules() []rule {
	const (
		probes  = "{livenessProbe,readinessProbe,startupProbe}."
		sidecar = "the init container is a sidecar (restartPolicy: Always): the API forbids it in others"
	)
	rules := []rule{
		refused(Nowhere, "the API forbids it in readiness probes",
			plainContainer+".readinessProbe.terminationGracePeriodSeconds"),
	}
	both := func(test, paths string) {
		rules = append(rules, works(test, appContainer+"."+paths), where(sidecar, test, initContainer+"."+paths))
	}
	both("test/integration/TestFields/probes", probes+
		"{exec.command[*],tcpSocket.{port,host},grpc.{port,service},"+
		"httpGet.{path,port,host,scheme,httpHeaders[*].{name,value}}}")
	both("test/integration/TestFields/probe times",
		probes+"{successThreshold,failureThreshold,initialDelaySeconds,periodSeconds,timeoutSeconds}")
	both("test/integration/TestLifecycle/probe grace", "{livenessProbe,startupProbe}.terminationGracePeriodSeconds")
	both("test/integration/TestFields/hooks",
		"lifecycle.{postStart,preStop}.{exec.command[*],sleep.seconds,"+
			"httpGet.{path,port,host,scheme,httpHeaders[*].{name,value}}}")
	return append(rules,
		noEffect(Nowhere, "such a hook always fails, as in Kubernetes, which has deprecated it",
			plainContainer+".lifecycle.{postStart,preStop}.tcpSocket..."),
		where("the runtime can stop containers by another signal (containerd 2.2)",
			"test/integration/TestLifecycle/signal", plainContainer+".lifecycle.stopSignal"),
	)
}
