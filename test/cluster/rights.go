package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
)

// nodeRole is the ClusterRole with everything that a kubelet may ask for. The Node authorizer
// allows it only for what concerns the node.
const nodeRole = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node"

// readNodeRules reads what the API server lets a kubelet ask for.
func (c *Cluster) readNodeRules(ctx context.Context) error {
	if err := c.await(ctx, c.APIServer, nodeRole); err != nil {
		return err
	}
	client, err := rest.UnversionedRESTClientFor(restDefaults(c.Config()))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	text, err := client.Get().AbsPath(nodeRole).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("read the nodes' rights: %w", err)
	}
	var role rbacv1.ClusterRole
	if err := json.Unmarshal(text, &role); err != nil || len(role.Rules) == 0 {
		return fmt.Errorf("read the nodes' rights: %d rules (%w)", len(role.Rules), err)
	}
	c.nodeRules = role.Rules
	return nil
}

// mayKubelet reports whether a kubelet may send a request: the rules have it, or it asks for the
// state of the API server, which everybody may know.
func mayKubelet(rules []rbacv1.PolicyRule, r asked) bool {
	if r.ObjectRef.Resource == "" {
		return slices.Contains([]string{"/readyz", "/livez", "/healthz", "/version"}, r.RequestURI)
	}
	resource := r.ObjectRef.Resource
	if r.ObjectRef.Subresource != "" {
		resource += "/" + r.ObjectRef.Subresource
	}
	return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Verbs, r.Verb) && slices.Contains(rule.APIGroups, r.ObjectRef.APIGroup) &&
			slices.Contains(rule.Resources, resource)
	})
}
