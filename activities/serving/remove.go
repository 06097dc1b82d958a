package serving

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/kube"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

const deletePollInterval = 250 * time.Millisecond

func belonging(req serving.PartyRequest) string {
	return labels.Set{kuscia.LabelController: kuscia.ControllerName, kuscia.LabelDeploymentName: req.ID,
		kuscia.LabelDeploymentUID: req.UID, kuscia.LabelWorkload: req.Deployment}.String()
}

// Remove deletes all objects that belong to a serving's Deployments from the parties' namespaces, and waits until they
// are deleted.
func (a *Activities) Remove(ctx context.Context, req serving.GroupRequest) (*serving.GroupResult, error) {
	return a.runStep(ctx, req, a.removeParty)
}

func (a *Activities) removeParty(ctx context.Context, m *member) (*serving.DeploymentSnapshot, error) {
	req := m.req
	req.DeadlineSeconds = 0 // it must succeed, however long it takes
	return nil, a.run(ctx, &job{req: req, round: func(ctx context.Context, _ *job) (attempt.Next, error) {
		left, err := a.remove(ctx, req, nil)
		if err != nil || left == 0 {
			return attempt.Next{Action: attempt.Done}, err
		}
		return attempt.Next{Action: attempt.Wait, Within: deletePollInterval}, nil
	}})
}

// prune deletes the additional Services and ConfigMaps of an earlier version.
func (a *Activities) prune(ctx context.Context, req serving.PartyRequest, objects serving.Objects) error {
	if a.watch.hasOnly(name{req.Domain, req.Deployment}, serving.ObjectsOf(objects.Deployment), req.Token()) {
		return nil
	}
	keep := map[string]bool{"Deployment/" + objects.Deployment.Name: true}
	for _, name := range serving.ObjectsOf(objects.Deployment) {
		keep[name] = true
	}
	_, err := a.remove(ctx, req, keep)
	return err
}

// deleter deletes one object, but not a later one of the same name.
type deleter struct {
	name string
	uid  types.UID
	do   func(ctx context.Context, name string, o metav1.DeleteOptions) error
}

// remove deletes the objects of a Deployment that are not in keep, and returns how many there were.
func (a *Activities) remove(ctx context.Context, req serving.PartyRequest, keep map[string]bool) (found int,
	err error) {
	all, err := a.list(ctx, req)
	if err != nil {
		return 0, err
	}
	for _, d := range all {
		if keep[d.name] {
			continue
		}
		if found++; keep != nil && found == 1 {
			if err := (&writer{a: a, req: req}).checkToken(ctx); err != nil {
				return found, err // an object that seems superfluous may belong to a newer operation
			}
		}
		kind, name, _ := strings.Cut(d.name, "/")
		options := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground),
			Preconditions: &metav1.Preconditions{UID: &d.uid}}
		err := failpoint.Around("serving."+kind+".delete", func() error { return d.do(ctx, name, options) })
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return found, err
		}
	}
	return found, nil
}

// list reads the objects of a Deployment from the API server, because the watch may lag behind recent writes.
func (a *Activities) list(ctx context.Context, req serving.PartyRequest) ([]deleter, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.CallTimeout) // a list clears the client's own limit
	defer cancel()
	options := metav1.ListOptions{LabelSelector: belonging(req)}
	var all []deleter
	services, err := a.client.CoreV1().Services(req.Domain).List(ctx, options)
	if err != nil {
		return nil, err
	}
	for _, o := range services.Items {
		all = append(all, deleter{"Service/" + o.Name, o.UID, a.client.CoreV1().Services(req.Domain).Delete})
	}
	deployments, err := a.client.AppsV1().Deployments(req.Domain).List(ctx, options)
	if err != nil {
		return nil, err
	}
	for _, o := range deployments.Items {
		all = append(all, deleter{"Deployment/" + o.Name, o.UID, a.client.AppsV1().Deployments(req.Domain).Delete})
	}
	configMaps, err := a.client.CoreV1().ConfigMaps(req.Domain).List(ctx, options)
	if err != nil {
		return nil, err
	}
	for _, o := range configMaps.Items {
		all = append(all, deleter{"ConfigMap/" + o.Name, o.UID, a.client.CoreV1().ConfigMaps(req.Domain).Delete})
	}
	return all, nil
}
