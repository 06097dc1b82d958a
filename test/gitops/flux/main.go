// Plays Flux's kustomize-controller with its own library: server-side apply of what has drifted, by the field manager and with the options of that
// controller. See package round for what it reads and writes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/jsondiff"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"slipway.io/slipway/test/gitops/round"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "whose cluster")
	manifest := flag.String("manifest", "", "what the objects are to be: a JSON List")
	f := &flux{}
	flag.Func("ignore", "a rule of the Kustomization's spec.ignore: a field like Deployment/spec/paused; can be repeated", f.ignore)
	flag.Parse()
	log.SetLogger(logr.Discard())
	err := f.open(*kubeconfig)
	if err == nil {
		err = round.Serve(f, *manifest, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The names of the controller's API group, under which its labels and its settings for one object are.
const (
	group  = "kustomize.toolkit.fluxcd.io"
	setSSA = group + "/ssa"
)

// flux is the controller of one Kustomization.
type flux struct {
	manager *ssa.ResourceManager
	ignored []jsondiff.IgnoreRule
}

func (f *flux) open(kubeconfig string) error {
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

func (f *flux) ignore(field string) error {
	kind, path, found := strings.Cut(field, "/")
	if !found {
		return fmt.Errorf("%q is no kind and field", field)
	}
	f.ignored = append(f.ignored, jsondiff.IgnoreRule{Paths: []string{"/" + path}, Selector: &jsondiff.Selector{Kind: kind}})
	return nil
}

// Sync applies what differs.
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
	all, err := f.owned(objects)
	if err != nil {
		return nil, err
	}
	set, err := f.manager.ApplyAllStaged(context.Background(), all, options)
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
	all, err := f.owned(objects)
	if err != nil {
		return nil, err
	}
	options := ssa.DefaultDiffOptions()
	options.DriftIgnoreRules = f.ignored
	var results []round.Result
	for _, object := range all {
		entry, live, merged, err := f.manager.Diff(context.Background(), object, options)
		if err != nil {
			return nil, err
		}
		r := result(*entry)
		if r.Changed && live != nil {
			r.Said = fmt.Sprintf("from %v to %v", live.Object, merged.Object)
		}
		results = append(results, r)
	}
	return results, nil
}

// Health is what the controller waits for, with spec.wait or healthChecks.
func (f *flux) Health(objects []round.Object) ([]round.Result, error) {
	all, err := f.owned(objects)
	if err != nil {
		return nil, err
	}
	var results []round.Result
	for _, object := range all {
		live := object.DeepCopy()
		if err := f.manager.Client().Get(context.Background(), client.ObjectKeyFromObject(object), live); err != nil {
			return nil, err
		}
		found, err := status.Compute(live)
		if err != nil {
			return nil, err
		}
		results = append(results, round.Result{Object: object.GetKind() + "/" + object.GetName(), Said: string(found.Status) + ": " + found.Message})
	}
	return results, nil
}

// owned are the objects with the labels by which the controller knows them.
func (f *flux) owned(objects []round.Object) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, raw := range objects {
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(raw); err != nil {
			return nil, err
		}
		all = append(all, object)
	}
	f.manager.SetOwnerLabels(all, "shop", "flux-system")
	return all, nil
}

func result(e ssa.ChangeSetEntry) round.Result {
	changed := e.Action == ssa.ConfiguredAction || e.Action == ssa.CreatedAction
	return round.Result{Object: e.ObjMetadata.GroupKind.Kind + "/" + e.ObjMetadata.Name, Changed: changed, Said: string(e.Action)}
}
