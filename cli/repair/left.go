package repair

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/dynamic"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	claims "slipway.io/slipway/release/workloadops"
)

type left struct {
	workload catalog.Workload
	saved    rollout.Saved
	claim    string
	// template is the digest of the live pod template, live the template itself.
	template string
	live     map[string]any
	// edited says that somebody has changed the template since the last step came to rest.
	edited bool
}

func (l left) holder() string { return claims.ParseHolder(l.claim).WorkflowID }

// named refuses what another engine or another rollout than the one that was named has left: it may be live, and nobody can tell here.
func (l left) named(o options) error {
	holder := claims.ParseHolder(cmp.Or(l.claim, l.saved.Claim))
	if engine := holder.Engine; engine.UID != "" && engine.Name != o.engine {
		return fmt.Errorf("%s: the rollout on it is one of engine %s, not of engine %s: stop it there; if nothing of that engine works on it "+
			"any more, name it with --engine %s", l.workload, engine.Name, o.engine, engine.Name)
	}
	if asked := cmp.Or(o.rollout, l.workload.WorkloadRef.Name); l.saved.Name != asked {
		return fmt.Errorf("%s: the rollout on it is called %s, not %s: if you mean that one, name it with --rollout %s", l.workload, l.saved.Name,
			asked, l.saved.Name)
	}
	return nil
}

// nothingLeftError: there is nothing to repair.
type nothingLeftError string

func (e nothingLeftError) Error() string { return string(e) }

func resourceOf(ref catalog.WorkloadRef) schema.GroupVersionResource {
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		version = schema.GroupVersion{Version: ref.APIVersion} // parseWorkload knows its kinds
	}
	return version.WithResource(strings.ToLower(ref.Kind) + "s")
}

// readLeft reads what a rollout has left on the workload; nothingLeftError when it left nothing.
func readLeft(ctx context.Context, api dynamic.Interface, w catalog.Workload) (left, error) {
	l := left{workload: w}
	object, err := api.Resource(resourceOf(w.WorkloadRef)).Namespace(w.Namespace).Get(ctx, w.WorkloadRef.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return l, fmt.Errorf("there is no %s: is this the right cluster and namespace?", w)
	case err != nil:
		return l, fmt.Errorf("%s cannot be read: %w", w, err)
	}
	annotations := object.GetAnnotations()
	l.claim = annotations[claims.AnnotationClaimedBy]
	text := rollout.SavedOn(object.GetLabels(), annotations)
	there := text != ""
	switch {
	case !there && annotations[rollout.AnnotationSaved] != "":
		return l, nothingLeftError(fmt.Sprintf("%s carries only copies of what a release of before had on it, which kubectl rollout undo has brought back: there is "+
			"nothing to repair, and the next release takes them away", w))
	case !there && l.claim != "":
		return l, nothingLeftError(fmt.Sprintf("%s is held by %s, which is no rollout: run that operation again, it brings home what "+
			"it has begun", w, l.holder()))
	case !there:
		return l, nothingLeftError(fmt.Sprintf("%s carries nothing of a rollout: there is nothing to repair", w))
	}
	saved, err := pods.ReadSaved(w.WorkloadRef, text)
	if err != nil {
		return l, fmt.Errorf("%s: its annotation %s cannot be read (%w): put the workload right by hand, as its annotation %s says",
			w, rollout.AnnotationSaved, err, rollout.AnnotationRecover)
	}
	l.saved = *saved
	l.live, _, _ = unstructured.NestedMap(object.Object, "spec", "template")
	l.template = pods.Digest(l.live)
	l.edited = l.editedSince(ctx, api, annotations[rollout.AnnotationRest])
	return l, nil
}

// editedSince says whether the template is neither the stable one nor the one of the last rest. While pods move the rest names none: then it is compared with the
// new version's revision, and where that is not known yet, only the rollout's own first write has noted its gate.
func (l left) editedSince(ctx context.Context, api dynamic.Interface, text string) bool {
	var rest rollout.Rest
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
	return err != nil || pods.Digest(fresh) != l.template // a newest revision that can't be read is nothing to rely on
}

// newVersion is what the workload's template is to become for the new version: template is the digest of the live one when that is the new
// version already; else change makes it of the stable one.
func (l left) newVersion(ctx context.Context, api dynamic.Interface) (template string, change strategy.Change, err error) {
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

// newTemplate reads the new version's pod template from where it still stands: the extra workload, or the revision that was made of it.
func (l left) newTemplate(ctx context.Context, api dynamic.Interface) (map[string]any, error) {
	w, saved := l.workload, l.saved
	resource, name, path := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "controllerrevisions"}, saved.Canary,
		[]string{"data", "spec", "template"}
	nothing := fmt.Errorf("%s has no pod of the new version yet, and nothing says what that is: bring it home to stable, and start "+
		"the release again", w)
	switch {
	case saved.CanaryWorkload != "":
		resource.Resource, name, path = "deployments", saved.CanaryWorkload, []string{"spec", "template"}
	case saved.Canary == "":
		return nil, nothing
	case w.WorkloadRef.Kind == claims.KindDeployment:
		resource.Resource, name, path = "replicasets", w.WorkloadRef.Name+"-"+saved.Canary, []string{"spec", "template"}
	}
	object, err := api.Resource(resource).Namespace(w.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && saved.Canary == "" {
		return nil, nothing
	}
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%s: %s %s, which has the new version's pod template, is not there: bring the workload home to stable, "+
			"and start the release again",
			w, strings.TrimSuffix(resource.Resource, "s"), name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s cannot be read: %w", strings.TrimSuffix(resource.Resource, "s"), name, err)
	}
	template, _, _ := unstructured.NestedMap(object.Object, path...)
	template = pods.Stripped(template)
	if saved.CanaryWorkload != "" {
		takeAway(template, saved.CanaryMetadata)
	}
	return template, nil
}

// takeAway removes what was added to the pods of the extra workload.
func takeAway(template map[string]any, added *strategy.PodMetadata) {
	unstructured.RemoveNestedField(template, "metadata", "labels", strategy.LabelCanaryOf)
	if added == nil {
		return
	}
	for key := range added.Labels {
		unstructured.RemoveNestedField(template, "metadata", "labels", key)
	}
	for key := range added.Annotations {
		unstructured.RemoveNestedField(template, "metadata", "annotations", key)
	}
}

// templatePatch is the patch that makes one pod template of another, of the kind that a Change of that API version has: a strategic
// merge patch for apps/v1, a JSON merge patch otherwise.
func templatePatch(apiVersion string, from, to map[string]any) (json.RawMessage, error) {
	before, err := json.Marshal(from)
	if err != nil {
		return nil, fmt.Errorf("the stable pod template cannot be written as JSON: %w", err)
	}
	after, err := json.Marshal(to)
	if err != nil {
		return nil, fmt.Errorf("the new pod template cannot be written as JSON: %w", err)
	}
	if apiVersion == claims.APIVersion {
		patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.PodTemplateSpec{})
		return patch, err
	}
	return jsonmergepatch.CreateThreeWayJSONMergePatch(before, after, before)
}
