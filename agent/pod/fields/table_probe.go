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
	both := func(app, first, paths string) {
		rules = append(rules, works(app, appContainer+"."+paths), where(sidecar, first, initContainer+"."+paths))
	}
	const fields = "test/integration/TestFields/"
	both(fields+"probes", fields+"sidecars' probes", probes+
		"{exec.command[*],tcpSocket.{port,host},grpc.{port,service},"+
		"httpGet.{path,port,host,scheme,httpHeaders[*].{name,value}}}")
	const times = "{successThreshold,failureThreshold,initialDelaySeconds,periodSeconds,timeoutSeconds}"
	both(fields+"probe times", fields+"sidecars' times", "{livenessProbe,readinessProbe}."+times)
	both(fields+"startup times", fields+"startup times", "startupProbe."+times)
	both("test/integration/TestLifecycle/probe grace", "test/integration/TestLifecycle/sidecar grace",
		"livenessProbe.terminationGracePeriodSeconds")
	both(fields+"startup times", fields+"startup times", "startupProbe.terminationGracePeriodSeconds")
	both(fields+"hooks", fields+"sidecars' hooks",
		"lifecycle.{postStart,preStop}.{exec.command[*],sleep.seconds,"+
			"httpGet.{path,port,host,scheme,httpHeaders[*].{name,value}}}")
	return append(rules,
		noEffect(Nowhere, "such a hook always fails, as in Kubernetes, which has deprecated it",
			plainContainer+".lifecycle.{postStart,preStop}.tcpSocket..."),
		where("the runtime can stop containers by another signal (containerd 2.2)",
			"test/integration/TestLifecycle/signal", appContainer+".lifecycle.stopSignal"),
		where("the runtime can stop containers by another signal (containerd 2.2)",
			"agent/pod/generate/TestKindsOfContainers", initContainer+".lifecycle.stopSignal"),
	)
}
