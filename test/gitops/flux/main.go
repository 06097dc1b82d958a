// Command flux simulates Flux's kustomize-controller with its own library: server-side apply of drifted objects, with
// the field manager and options of that controller. Package round describes its input and output.
package main

import (
	"context"
	"fmt"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/jsondiff"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"slipway.io/slipway/test/gitops/round"
)

func main() {
	log.SetLogger(logr.Discard())
	round.Main(&flux{})
}

// group is the controller's API group, the prefix of its labels; setSSA is its annotation for the apply mode of one
// object.
const (
	group  = "kustomize.toolkit.fluxcd.io"
	setSSA = group + "/ssa"
)

// flux is the controller of one Kustomization.
type flux struct {
	manager *ssa.ResourceManager
	ignored []jsondiff.IgnoreRule
}

// Open creates the client.
func (f *flux) Open(kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	f.manager = ssa.NewResourceManager(c, nil, ssa.Owner{Field: "kustomize-controller", Group: group})
	return nil
}

// Ignore adds a rule of the Kustomization's spec.ignore.
func (f *flux) Ignore(kind, pointer string) {
	f.ignored = append(f.ignored, jsondiff.IgnoreRule{Paths: []string{pointer},
		Selector: &jsondiff.Selector{Kind: kind}})
}

// Sync applies drifted objects.
func (f *flux) Sync(objects []round.Object) ([]round.Result, error) {
	options := ssa.DefaultApplyOptions()
	options.ExclusionSelector = map[string]string{group + "/reconcile": "disabled", setSSA: "Ignore"}
	options.IfNotPresentSelector = map[string]string{setSSA: "IfNotPresent"}
	options.DriftIgnoreRules = f.ignored
	options.ForceSelector = map[string]string{group + "/force": "enabled"}
	options.Cleanup = ssa.ApplyCleanupOptions{
		Annotations: []string{corev1.LastAppliedConfigAnnotation},
		FieldManagers: []ssa.FieldManager{
			{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationApply},
			{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationUpdate},
			{Name: "before-first-apply", OperationType: metav1.ManagedFieldsOperationUpdate},
		},
		Exclusions: map[string]string{setSSA: "Merge"},
	}
	set, err := f.manager.ApplyAllStaged(context.Background(), f.owned(objects), options)
	if err != nil {
		return nil, err
	}
	var results []round.Result
	for _, e := range set.Entries {
		results = append(results, result(e))
	}
	return results, nil
}

// Diff asks the API server what an apply would change.
func (f *flux) Diff(objects []round.Object) ([]round.Result, error) {
	options := ssa.DefaultDiffOptions()
	options.DriftIgnoreRules = f.ignored
	var results []round.Result
	for _, object := range f.owned(objects) {
		entry, live, merged, err := f.manager.Diff(context.Background(), object, options)
		if err != nil {
			return nil, err
		}
		r := result(*entry)
		if r.Changed && live != nil {
			r.Message = fmt.Sprintf("from %v to %v", live.Object, merged.Object)
		}
		results = append(results, r)
	}
	return results, nil
}

// Health returns the status for which the controller waits with spec.wait or healthChecks.
func (f *flux) Health(objects []round.Object) ([]round.Result, error) {
	var results []round.Result
	for _, object := range f.owned(objects) {
		live := object.DeepCopy()
		if err := f.manager.Client().Get(context.Background(), client.ObjectKeyFromObject(object), live); err != nil {
			return nil, err
		}
		found, err := status.Compute(live)
		if err != nil {
			return nil, err
		}
		results = append(results, round.Result{Object: round.Name(object),
			Message: string(found.Status) + ": " + found.Message})
	}
	return results, nil
}

// owned adds the controller's owner labels to the objects.
func (f *flux) owned(objects []round.Object) []round.Object {
	f.manager.SetOwnerLabels(objects, "shop", "flux-system")
	return objects
}

func result(e ssa.ChangeSetEntry) round.Result {
	changed := e.Action == ssa.ConfiguredAction || e.Action == ssa.CreatedAction
	return round.Result{Object: e.ObjMetadata.GroupKind.Kind + "/" + e.ObjMetadata.Name, Changed: changed,
		Message: string(e.Action)}
}
