package generate

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// serviceEnv returns the variables by which a pod finds services. They are those of the services of
// its own namespace, unless enableServiceLinks is false. The variables of default/kubernetes are
// always there, unless a linked service of the pod's own namespace has that name.
func serviceEnv(pod *v1.Pod, services []*v1.Service) map[string]string {
	links := pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks
	seen := map[string]*v1.Service{}
	for _, service := range services {
		if !hasClusterIP(service) {
			continue
		}
		master := service.Namespace == v1.NamespaceDefault && service.Name == "kubernetes"
		if links && service.Namespace == pod.Namespace || master && seen[service.Name] == nil {
			seen[service.Name] = service
		}
	}
	env := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		addService(env, seen[name])
	}
	return env
}

func hasClusterIP(service *v1.Service) bool {
	return service.Spec.ClusterIP != "" && service.Spec.ClusterIP != v1.ClusterIPNone && len(service.Spec.Ports) > 0
}

// addService adds NAME_SERVICE_HOST and _PORT, a _PORT_ for each named port, and the variables of
// Docker's links.
func addService(env map[string]string, service *v1.Service) {
	name, ip := envName(service.Name), service.Spec.ClusterIP
	env[name+"_SERVICE_HOST"] = ip
	for i, port := range service.Spec.Ports {
		number := strconv.Itoa(int(port.Port))
		protocol := string(port.Protocol)
		if protocol == "" {
			protocol = string(v1.ProtocolTCP)
		}
		url := strings.ToLower(protocol) + "://" + net.JoinHostPort(ip, number)
		if i == 0 {
			env[name+"_SERVICE_PORT"] = number
			env[name+"_PORT"] = url
		}
		if port.Name != "" {
			env[name+"_SERVICE_PORT_"+envName(port.Name)] = number
		}
		link := fmt.Sprintf("%s_PORT_%s_%s", name, number, strings.ToUpper(protocol))
		env[link] = url
		env[link+"_PROTO"] = strings.ToLower(protocol)
		env[link+"_PORT"] = number
		env[link+"_ADDR"] = ip
	}
}

func envName(name string) string {
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}
