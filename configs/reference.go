package configs

// WithoutEffect returns the fields of a KubeletConfiguration that are accepted and not acted on, by path, with what happens instead.
// Those that count on a node of a cluster say so.
func WithoutEffect() map[string]string {
	fields := fieldsWithoutEffect()
	for path, reason := range clusterFields() {
		fields[path] = "without --kubeconfig: " + reason
	}
	for _, path := range apiFields() {
		fields[path] = "without --kubeconfig: only where address or port and authentication.x509.clientCAFile are set"
	}
	return fields
}
