package configs

// WithoutEffect returns the fields of a KubeletConfiguration that are accepted and ignored, by
// path, each with what happens instead. The text says if a field has an effect on a node of a
// cluster.
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
