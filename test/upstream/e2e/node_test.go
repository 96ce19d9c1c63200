package e2e

// Upstream's tests of a kubelet are a package that is built from its own folder. They need this
// module, which nothing else here needs.
import _ "k8s.io/system-validators/validators"
