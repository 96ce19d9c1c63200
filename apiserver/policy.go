package apiserver

import (
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
	schedulingrest "k8s.io/kubernetes/pkg/registry/scheduling/rest"

	"github.com/berthd/berth/apiserver/bootstrap"
)

const (
	// policyInterval is the time between two attempts: admission refuses objects until its informers
	// are synced.
	policyInterval = 100 * time.Millisecond
	// policyPatience is after how long the server gives up. Upstream's do after 30 s, which a busy
	// machine may take; and a server that begins anew has to do the same again.
	policyPatience = 5 * time.Minute
)

// policy is what one of upstream's hooks makes of an API's first objects.
type policy struct {
	hook string
	kind schema.GroupVersionResource
	make func(context.Context, kubernetes.Interface) error
}

// takePolicies switches off the hooks of upstream's for which this server has its own, and returns
// those that it would have run.
func takePolicies(config app.CompletedConfig) (taken []policy) {
	disabled := config.KubeAPIs.ControlPlane.Generic.DisabledPostStartHooks
	for _, p := range []policy{
		{rbacrest.PostStartHookName, rbacv1.SchemeGroupVersion.WithResource("clusterroles"), bootstrap.Roles},
		{
			schedulingrest.PostStartHookName, schedulingv1.SchemeGroupVersion.WithResource("priorityclasses"),
			bootstrap.PriorityClasses,
		},
	} {
		served := config.KubeAPIs.ControlPlane.APIResourceConfigSource.ResourceEnabled(p.kind)
		if served && !disabled.Has(p.hook) { // upstream disables that of roles if nothing asks for them
			taken = append(taken, p)
		}
		disabled.Insert(p.hook)
	}
	return taken
}

// addPolicies adds hooks of upstream's names to the made server. stop is called if one of them fails
// for good.
func addPolicies(
	server *genericapiserver.GenericAPIServer, config app.CompletedConfig, taken []policy, stop context.CancelCauseFunc,
) error {
	for _, p := range taken {
		config.KubeAPIs.ControlPlane.Generic.DisabledPostStartHooks.Delete(p.hook) // all servers of the chain share it
		hook := func(h genericapiserver.PostStartHookContext) error {
			if err := ensure(h, rest.CopyConfig(h.LoopbackClientConfig), p.make); err != nil {
				stop(fmt.Errorf("%s: %w", p.hook, err))
			}
			return nil
		}
		if err := server.AddPostStartHook(p.hook, hook); err != nil {
			return fmt.Errorf("add the hook %s: %w", p.hook, err)
		}
	}
	return nil
}

// ensure calls do again and again until it succeeds, which may take policyPatience. It returns nil
// when the context ends.
func ensure(ctx context.Context, loopback *rest.Config, do func(context.Context, kubernetes.Interface) error) error {
	loopback.QPS = -1 // the server's own priorities limit it
	client, err := kubernetes.NewForConfig(loopback)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	end := time.Now().Add(policyPatience)
	for {
		err := do(ctx, client)
		if err == nil || ctx.Err() == nil && time.Now().After(end) {
			return err
		}
		klog.V(2).InfoS("The API's first objects are not complete yet", "err", err)
		if !sleep(ctx, policyInterval) {
			return nil
		}
	}
}
