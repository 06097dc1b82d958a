// Command argo simulates Argo CD's application controller with its own library: it compares the manifest with the live
// objects and syncs if they differ, like an application with self-heal. Package round describes its input and output.
package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/diff"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/health"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync/common"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/tracing"
	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.io/slipway/test/gitops/round"
)

func main() {
	a := &argo{kubectl: &kube.KubectlCmd{Log: logr.Discard(), Tracer: tracing.NopTracer{}}, ignored: ignored{}}
	flag.BoolVar(&a.serverSide, "server-side", false, "syncs with ServerSideApply=true")
	round.Main(a)
}

// manager is the field manager of the controller.
const manager = "argocd-controller"

// argo is the controller of one Application.
type argo struct {
	config     *rest.Config
	kubectl    *kube.KubectlCmd
	options    []diff.Option
	serverSide bool
	ignored
}

// Open reads the cluster's schema.
func (a *argo) Open(kubeconfig string) (err error) {
	if a.config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return err
	}
	_, types, err := a.kubectl.LoadOpenAPISchema(a.config)
	if err != nil {
		return err
	}
	a.options = []diff.Option{diff.WithLogr(logr.Discard()), diff.WithGVKParser(types), diff.WithManager(manager),
		diff.WithNormalizer(a.ignored)}
	return nil
}

// Sync syncs if an object differs.
func (a *argo) Sync(objects []round.Object) ([]round.Result, error) {
	found, diffs, err := a.compare(objects)
	if err != nil {
		return nil, err
	}
	if diffs.Modified {
		if err := a.sync(found); err != nil {
			return nil, err
		}
	}
	return results(found, diffs), nil
}

// Diff returns the differences.
func (a *argo) Diff(objects []round.Object) ([]round.Result, error) {
	found, diffs, err := a.compare(objects)
	if err != nil {
		return nil, err
	}
	return results(found, diffs), nil
}

// Health returns the health that the controller shows and a sync wave waits for.
func (a *argo) Health(objects []round.Object) ([]round.Result, error) {
	found, err := a.find(objects)
	if err != nil {
		return nil, err
	}
	var all []round.Result
	for i, live := range found.Live {
		r := round.Result{Object: round.Name(found.Target[i]), Message: "no health"}
		if live != nil {
			h, err := health.GetResourceHealth(live, nil)
			if err != nil {
				return nil, err
			}
			if h != nil {
				r.Message = string(h.Status) + ": " + h.Message
			}
		}
		all = append(all, r)
	}
	return all, nil
}

// find reads the live objects of the manifest.
func (a *argo) find(objects []round.Object) (sync.ReconciliationResult, error) {
	var found sync.ReconciliationResult
	for _, target := range objects {
		live, err := a.kubectl.GetResource(context.Background(), a.config, target.GroupVersionKind(), target.GetName(),
			target.GetNamespace())
		if apierrors.IsNotFound(err) {
			live, err = nil, nil
		}
		if err != nil {
			return found, err
		}
		found.Target, found.Live = append(found.Target, target), append(found.Live, live)
	}
	return found, nil
}

func (a *argo) compare(objects []round.Object) (sync.ReconciliationResult, *diff.DiffResultList, error) {
	found, err := a.find(objects)
	if err != nil {
		return found, nil, err
	}
	options := append([]diff.Option{diff.WithStructuredMergeDiff(a.serverSide)}, a.options...)
	diffs, err := diff.DiffArray(found.Target, found.Live, options...)
	return found, diffs, err
}

// sync runs one sync operation of the controller.
func (a *argo) sync(found sync.ReconciliationResult) error {
	a.ignored.respect(found)
	operation, end, err := sync.NewSyncContext("main", found, a.config, a.config, a.kubectl,
		found.Target[0].GetNamespace(),
		sync.WithLogr(logr.Discard()), sync.WithServerSideApply(a.serverSide), sync.WithServerSideApplyManager(manager))
	if err != nil {
		return err
	}
	defer end()
	operation.Sync()
	phase, message, failures := operation.GetState()
	if phase != common.OperationSucceeded && phase != common.OperationRunning {
		for _, t := range failures {
			message += "; " + t.ResourceKey.String() + ": " + t.Message
		}
		return fmt.Errorf("sync: %s: %s", phase, message)
	}
	return nil
}

func results(found sync.ReconciliationResult, diffs *diff.DiffResultList) []round.Result {
	var all []round.Result
	for i, d := range diffs.Diffs {
		r := round.Result{Object: round.Name(found.Target[i]), Changed: d.Modified}
		if d.Modified {
			r.Message = fmt.Sprintf("from %s to %s", d.NormalizedLive, d.PredictedLive)
		}
		all = append(all, r)
	}
	return all
}
