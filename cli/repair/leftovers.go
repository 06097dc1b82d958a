package repair

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// leftovers is what an unfinished rollout has left on a workload.
type leftovers struct {
	workload catalog.Workload
	saved    rollout.Saved
	claim    string
	// template is the digest of the live pod template, live the template itself.
	template string
	live     map[string]any
	// recover is the text of rollout.AnnotationRecover.
	recover string
	// edited is true if another client changed the template since the last completed step.
	edited bool
}

func (l leftovers) holder() string { return workload.ParseHolder(l.claim).WorkflowID }

// checkIdentity returns an error if the rollout is another one, or another engine's, than the user named: it may still
// be running, which the repair cannot detect.
func (l leftovers) checkIdentity(o options) error {
	holder := workload.ParseHolder(cmp.Or(l.claim, l.saved.Claim))
	if engine := holder.Engine; engine.UID != "" && engine.Name != o.engine {
		return fmt.Errorf("%s: its rollout belongs to engine %s, not to engine %s: stop it there; if that engine no "+
			"longer works on it, use --engine %s", l.workload, engine.Name, o.engine, engine.Name)
	}
	if asked := cmp.Or(o.rollout, l.workload.WorkloadRef.Name); l.saved.Name != asked {
		return fmt.Errorf("%s: its rollout is %s, not %s: to repair that rollout, use --rollout %s", l.workload,
			l.saved.Name, asked, l.saved.Name)
	}
	return nil
}

// nothingToRepairError means that there is nothing to repair.
type nothingToRepairError string

func (e nothingToRepairError) Error() string { return string(e) }

// readLeftovers reads what a rollout has left on the workload. It returns nothingToRepairError if there is nothing to
// repair.
func readLeftovers(ctx context.Context, api dynamic.Interface, w catalog.Workload) (leftovers, error) {
	l := leftovers{workload: w}
	object, err := api.Resource(w.WorkloadRef.Lookup().Resource).Namespace(w.Namespace).Get(ctx, w.WorkloadRef.Name,
		metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return l, fmt.Errorf("%s not found: check the cluster and namespace", w)
	case err != nil:
		return l, fmt.Errorf("cannot read %s: %w", w, err)
	}
	annotations := rollout.AnnotationsOf(object)
	l.claim, l.recover = annotations[workload.AnnotationClaimedBy], annotations[rollout.AnnotationRecover]
	text := rollout.SavedOn(object.GetLabels(), annotations)
	there := text != ""
	switch {
	case !there && annotations[workload.AnnotationRollout] != "":
		return l, nothingToRepairError(fmt.Sprintf(
			"%s has only annotations of an earlier release, restored by kubectl rollout undo: there is "+
				"nothing to repair, and the next release removes them", w))
	case !there && l.claim != "":
		return l, nothingToRepairError(fmt.Sprintf(
			"%s is held by %s, which is not a rollout: run that operation again to complete or restore what "+
				"it started", w, l.holder()))
	case !there:
		return l, nothingToRepairError(fmt.Sprintf("%s has no unfinished rollout: there is nothing to repair", w))
	}
	saved, err := pods.ReadSaved(w.WorkloadRef, text)
	if err != nil {
		return l, fmt.Errorf("%s: cannot read its annotation %s (%w): restore the workload manually; its "+
			"annotation %s shows how, but read each command before you run it: clients that may edit the workload may "+
			"have changed it", w, workload.AnnotationRollout, err, rollout.AnnotationRecover)
	}
	l.saved = *saved
	l.live = workload.TemplateOf(object)
	l.template = pods.Digest(l.live)
	l.edited = l.editedSince(ctx, api, annotations[rollout.AnnotationSettled])
	return l, nil
}

// editedSince reports whether another client changed the template since the last completed step: it is neither the
// stable one nor the one recorded then. While pods are being replaced, the record has no template: then it compares
// with the new version's revision. If that is unknown too, GateSeen is set only by the rollout's own first write.
func (l leftovers) editedSince(ctx context.Context, api dynamic.Interface, text string) bool {
	var rest rollout.SettledState
	if text == "" || json.Unmarshal([]byte(text), &rest) != nil || l.template == l.saved.StableTemplate {
		return false
	}
	if rest.Template != "" {
		return l.template != rest.Template
	}
	if l.saved.Canary == "" && l.saved.CanaryWorkload == "" {
		return rest.GateSeen == 0
	}
	fresh, err := l.newTemplate(ctx, api)
	return err != nil || pods.Digest(fresh) != l.template // an unreadable revision counts as a change
}

// newVersion returns the new version's template: its digest if the live template already is the new version, otherwise
// the change that turns the stable template into it.
func (l leftovers) newVersion(ctx context.Context, api dynamic.Interface) (template string, change strategy.Change,
	err error) {
	if l.template != l.saved.StableTemplate {
		return l.template, change, nil
	}
	fresh, err := l.newTemplate(ctx, api)
	if err != nil {
		return "", change, err
	}
	change.TemplatePatch, err = templatePatch(l.workload.WorkloadRef.APIVersion, l.live, fresh)
	return "", change, err
}

// newTemplate reads the new version's pod template from the extra workload, or from the revision that the controller
// made.
func (l leftovers) newTemplate(ctx context.Context, api dynamic.Interface) (map[string]any, error) {
	w, saved := l.workload, l.saved
	resource, name, path := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "controllerrevisions"},
		saved.Canary, []string{"data", "spec", "template"}
	nothing := fmt.Errorf(
		"%s has no pod of the new version yet, and its template is unknown: use --to stable, and start "+
			"the release again", w)
	switch {
	case saved.CanaryWorkload != "":
		resource.Resource, name, path = "deployments", saved.CanaryWorkload, []string{"spec", "template"}
	case saved.Canary == "":
		return nil, nothing
	case w.WorkloadRef.Lookup().Revisions == workload.ReplicaSets:
		resource.Resource, name, path = "replicasets", w.WorkloadRef.Name+"-"+saved.Canary, []string{"spec", "template"}
	}
	object, err := api.Resource(resource).Namespace(w.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && saved.Canary == "" {
		return nil, nothing
	}
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%s: %s %s, which has the new version's pod template, was not found: use --to stable, "+
			"and start the release again", w, strings.TrimSuffix(resource.Resource, "s"), name)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s %s: %w", strings.TrimSuffix(resource.Resource, "s"), name, err)
	}
	template, _, _ := unstructured.NestedMap(object.Object, path...)
	if path[0] == "spec" { // of a Deployment or one of its ReplicaSets
		template = w.WorkloadRef.Lookup().Template(object.Object)
	}
	template = pods.Stripped(template)
	if saved.CanaryWorkload != "" {
		removeAdded(template, saved.CanaryMetadata)
	}
	return template, nil
}

// removeAdded removes the labels and annotations that were added to the pods of the extra workload.
func removeAdded(template map[string]any, added *strategy.PodMetadata) {
	unstructured.RemoveNestedField(template, "metadata", "labels", strategy.LabelCanaryOf)
	metadata := ptr.Deref(added, strategy.PodMetadata{})
	for key := range metadata.Labels {
		unstructured.RemoveNestedField(template, "metadata", "labels", key)
	}
	for key := range metadata.Annotations {
		unstructured.RemoveNestedField(template, "metadata", "annotations", key)
	}
}

// templatePatch returns the patch between two pod templates, of the type that a Change of this API version uses: a
// strategic merge patch for apps/v1, otherwise a JSON merge patch.
func templatePatch(apiVersion string, from, to map[string]any) (json.RawMessage, error) {
	before, err := json.Marshal(from)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the stable pod template as JSON: %w", err)
	}
	after, err := json.Marshal(to)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the new pod template as JSON: %w", err)
	}
	if apiVersion == appsv1.SchemeGroupVersion.String() {
		patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.PodTemplateSpec{})
		return patch, err
	}
	return jsonmergepatch.CreateThreeWayJSONMergePatch(before, after, before)
}
