package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berthd/berth/agent/cluster"
	"github.com/berthd/berth/agent/objects"
	"github.com/berthd/berth/agent/objects/watched"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/tokens"
	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/agent/volumes/claims"
)

// errAlone is why a pod that came from an API server has none of its objects on a node that has left the cluster.
var errAlone = errors.New("this node has no connection to the API server that the pod came from")

// podObjects gives each pod the objects of where it came from: one of a manifest gets those of manifests, one of the API server those of the API server. Neither
// ever gets the other's, so that a manifest on a node cannot reach what the API server guards.
type podObjects struct {
	local *objects.Store
	// api and tokens are nil on a node without a cluster.
	api    *watched.Watcher
	tokens *tokens.Manager
}

// ConfigMap returns a pod's ConfigMap, nil where there is none; the error says why it cannot be known now.
func (o podObjects) ConfigMap(pod *v1.Pod, name string) (*v1.ConfigMap, error) {
	if !source.Bound(pod) {
		cm, _ := o.local.ConfigMap(pod.Namespace, name)
		return cm, nil
	}
	if o.api == nil {
		return nil, errAlone
	}
	cm, err := o.api.ConfigMap(pod, name)
	return cm, toldOf(err)
}

// Secret is ConfigMap for Secrets.
func (o podObjects) Secret(pod *v1.Pod, name string) (*v1.Secret, error) {
	if !source.Bound(pod) {
		s, _ := o.local.Secret(pod.Namespace, name)
		return s, nil
	}
	if o.api == nil {
		return nil, errAlone
	}
	s, err := o.api.Secret(pod, name)
	return s, toldOf(err)
}

// pullSecret is Secret for image pulls, which do without those that cannot be had.
func (o podObjects) pullSecret(pod *v1.Pod, name string) (*v1.Secret, bool) {
	s, err := o.Secret(pod, name)
	return s, err == nil && s != nil
}

// toldOf turns an error about an object of the API server into one that its readers know: none where there is no such object.
func toldOf(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case errors.Is(err, watched.ErrPending):
		return fmt.Errorf("%w: %w", volumes.ErrUnderWay, err)
	}
	return err
}

// runtimeClass returns a pod's RuntimeClass by its name, nil where there is none.
func (o podObjects) runtimeClass(pod *v1.Pod, name string) *nodev1.RuntimeClass {
	switch {
	case !source.Bound(pod):
		return o.local.RuntimeClass(name)
	case o.api == nil:
		return nil
	}
	return o.api.RuntimeClass(name)
}

// services returns the Services of a pod's environment. A static pod makes do with those that are known; one from the API server must not miss any, above all
// not the API server's own.
func (o podObjects) services(pod *v1.Pod) ([]*v1.Service, error) {
	if o.api == nil {
		return nil, nil
	}
	services, read := o.api.Services(pod)
	if !read && source.Bound(pod) {
		return nil, errors.New("services have not yet been read at least once, cannot construct envvars")
	}
	return services, nil
}

// use has the objects of the API server that a pod needs watched, and says for which of them, and until when, the pod should wait.
func (o podObjects) use(pod *v1.Pod) (object string, until time.Time) {
	if o.api == nil {
		return "", time.Time{}
	}
	if !source.Bound(pod) {
		o.api.UseServices(pod)
		return "", time.Time{}
	}
	o.api.Use(pod)
	o.tokens.Use(pod)
	if object, until = o.api.Await(pod); object != "" {
		return object, until
	}
	if until = o.tokens.Await(pod); !until.IsZero() {
		object = "token of service account " + pod.Namespace + "/" + pod.Spec.ServiceAccountName
	}
	return object, until
}

// drop says that a pod needs its objects no more.
func (o podObjects) drop(uid podUID) {
	if o.api != nil {
		o.api.Drop(uid)
		o.tokens.Drop(uid)
	}
}

// podTokens gives pods of the API server their tokens; static ones have none.
type podTokens struct{ *tokens.Manager }

// tokensOf returns the tokens of pods, nil where there are none.
func tokensOf(o podObjects) volumes.Tokens {
	if o.tokens == nil {
		return nil
	}
	return podTokens{o.tokens}
}

// Token returns the content of a token's file.
func (t podTokens) Token(pod *v1.Pod, p *v1.ServiceAccountTokenProjection) ([]byte, error) {
	data, err := t.Manager.Token(pod, p)
	if errors.Is(err, tokens.ErrPending) {
		return nil, fmt.Errorf("%w: token: %w", volumes.ErrUnderWay, err)
	}
	return data, err
}

// podClaims gives each pod the volumes behind its claims, of where it came from.
type podClaims struct {
	local *claims.Binder
	api   *watched.Watcher
}

// Resolve returns the volume that a pod's claim is bound to.
func (c podClaims) Resolve(pod *v1.Pod, claim string) (*v1.PersistentVolume, error) {
	switch {
	case !source.Bound(pod):
		return c.local.Resolve(pod, claim)
	case c.api == nil:
		return nil, errAlone
	}
	pv, err := c.api.Resolve(pod, claim)
	if errors.Is(err, watched.ErrPending) {
		return nil, toldOf(err)
	}
	return pv, err
}

// objectsOf returns the objects of pods; conn is nil on a node without a cluster.
func (a *Agent) objectsOf(conn *cluster.Conn) (podObjects, error) {
	out := podObjects{local: a.objects}
	if conn == nil {
		return out, nil
	}
	core, err := conn.Group(v1.SchemeGroupVersion)
	if err != nil {
		return out, err
	}
	classes, err := conn.Group(nodev1.SchemeGroupVersion)
	if err != nil {
		return out, err
	}
	storage, err := conn.Group(storagev1.SchemeGroupVersion)
	if err != nil {
		return out, err
	}
	ready := cluster.NewReady(core).After
	out.api = watched.New(watched.Deps{
		Ready: ready,
		Grows: a.grows,
		Core:  core, Node: classes, Storage: storage, NodeLabels: func() map[string]string { return a.node.Admission().Labels },
		Wake: func(uid podUID) { a.workers.Wake(uid) }, Logger: a.log,
	})
	out.tokens = tokens.New(tokens.Deps{Core: core, Ready: ready, Wake: func(uid podUID) { a.workers.Wake(uid) }, Logger: a.log})
	return out, nil
}

// watchObjects keeps the API server's objects that pods use, in a cluster.
func (a *Agent) watchObjects(ctx context.Context) error { return a.podObjects.api.Run(ctx) }

// renewTokens keeps the pods' tokens fresh, in a cluster.
func (a *Agent) renewTokens(ctx context.Context) error { return a.podObjects.tokens.Run(ctx) }
