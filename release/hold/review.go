package hold

import (
	"encoding/json"
	"errors"
	"fmt"

	admission "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/review"
	"slipway.io/slipway/release/workload"
)

// reviewKind is the kind of the API server's request and of the response.
const reviewKind = "AdmissionReview"

// statusTooLarge is the HTTP status of an edit that is refused for its size.
const statusTooLarge = 413

// Reviewer answers admission requests. Its functions provide what is not in the request.
type Reviewer struct {
	// Engine reports whether a user is the engine, whose edits pass.
	Engine func(user, namespace string) bool
	// Rollouts lists the Rollouts of a namespace.
	Rollouts func(namespace string) ([]v1beta1.Rollout, error)
}

// edited is an admission request without its objects.
type edited struct {
	review.Review
	group, kind, resource, sub, name, namespace, user string
}

// read reads an admission request. Together with an error it returns what it has read until then.
func read(request []byte) (e edited, err error) {
	r, err := review.Read(request, "uid", "kind", "resource", "subResource", "name", "namespace", "operation",
		"userInfo", "object", "oldObject")
	if err != nil {
		err = fmt.Errorf("the request is not an %s: %w", reviewKind, err)
	} else {
		err = r.Check(admission.SchemeGroupVersion.String(), reviewKind)
	}
	return edited{Review: r, group: r.Member("kind", "group"), kind: r.Member("kind", "kind"),
		resource: r.Member("resource", "resource"), sub: r.Text("subResource"), name: r.Text("name"),
		namespace: r.Text("namespace"), user: r.Member("userInfo", "username")}, err
}

// Review handles an admission request for a creation or an edit. It decodes only the parts of the objects that decide.
// It returns an error for a body that is no such request, and if the Rollouts cannot be read.
func (a Reviewer) Review(request []byte) ([]byte, error) {
	e, err := read(request)
	if err != nil {
		return nil, err
	}
	ops, err := a.decide(e)
	if errors.Is(err, errTooLarge) {
		return e.refusal(err.Error())
	}
	if err != nil {
		return nil, err
	}
	response := &admission.AdmissionResponse{Allowed: true}
	if len(ops) > 0 {
		if response.Patch, err = json.Marshal(ops); err != nil {
			return nil, err
		}
		response.PatchType = new(admission.PatchTypeJSONPatch)
	}
	return e.answer(response)
}

// Refuse answers a review that isn't read to its end, from its beginning. It refuses the edit, unless the engine makes
// it or no Rollout names the workload. why says why the review isn't read, and what to do.
func (a Reviewer) Refuse(beginning []byte, why string) ([]byte, error) {
	e, err := read(beginning)
	if e.Request["uid"] == nil || e.Check(admission.SchemeGroupVersion.String(), reviewKind) != nil {
		return nil, err
	}
	if e.user != "" && a.Engine(e.user, e.namespace) {
		return e.answer(&admission.AdmissionResponse{Allowed: true})
	}
	if k := Kind(workload.Of(e.group, e.kind)); workload.Kind(k).Known() && e.name != "" && e.namespace != "" {
		if rollouts, err := a.Rollouts(e.namespace); err == nil && k.rolloutFor(rollouts, e.name) == "" {
			return e.answer(&admission.AdmissionResponse{Allowed: true})
		}
	}
	return e.refusal(why)
}

// refusal returns the response that refuses the edit.
func (e edited) refusal(why string) ([]byte, error) {
	return e.answer(&admission.AdmissionResponse{Result: &metav1.Status{Status: metav1.StatusFailure,
		Reason: metav1.StatusReasonRequestEntityTooLarge, Code: statusTooLarge,
		Message: fmt.Sprintf("%s %s/%s can't be held by its Rollout: %s", e.kind, e.namespace, e.name, why)}})
}

func (e edited) answer(response *admission.AdmissionResponse) ([]byte, error) {
	response.UID = types.UID(e.Text("uid"))
	return json.Marshal(admission.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: e.APIVersion, Kind: e.Kind},
		Response: response})
}

func (a Reviewer) decide(r edited) ([]jsonpatch.Op, error) {
	operation := admission.Operation(r.Text("operation"))
	if operation != admission.Create && operation != admission.Update {
		return nil, fmt.Errorf("the gate does not handle the operation %s", operation)
	}
	status := r.Member("resource", "group") == v1beta1.GroupVersion.Group && r.resource == v1beta1.Resource.Resource &&
		r.sub == "status"
	k := Kind(workload.Of(r.group, r.kind))
	if !status && (!workload.Kind(k).Known() || r.sub != "") {
		return nil, fmt.Errorf("the gate does not handle the resource %s/%s", r.resource, r.sub)
	}
	if a.Engine(r.user, r.namespace) {
		return nil, nil
	}
	after, err := k.parts(r.Request["object"])
	if err != nil {
		return nil, err
	}
	e := Edit{New: after, User: r.user}
	if operation == admission.Update {
		if e.Old, err = k.parts(r.Request["oldObject"]); err != nil {
			return nil, err
		}
	}
	if status {
		return DecideStatus(e.Old, e.New, r.user), nil
	}
	label := func(object map[string]any) bool {
		_, there := jsonpatch.At(object, jsonpatch.Label(gate.Label))
		return there
	}
	if !label(e.New) && !label(e.Old) {
		if e.Rollouts, err = a.Rollouts(r.namespace); err != nil {
			return nil, err
		}
	}
	return k.Decide(e), nil
}
