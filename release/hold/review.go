package hold

import (
	"encoding/json"
	"errors"
	"fmt"

	admission "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/workload"
)

// reviewKind is the kind of the API server's request and of the response.
const reviewKind = "AdmissionReview"

// Reviewer answers admission requests. Its functions provide what is not in the request.
type Reviewer struct {
	// Engine reports whether a user is the engine, whose edits pass.
	Engine func(user, namespace string) bool
	// Rollouts lists the Rollouts of a namespace.
	Rollouts func(namespace string) ([]v1beta1.Rollout, error)
}

// Review handles an admission request for a creation or an edit. It returns an error for a body that is no such
// request, and if the Rollouts cannot be read.
func (a Reviewer) Review(request []byte) ([]byte, error) {
	var review admission.AdmissionReview
	if err := json.Unmarshal(request, &review); err != nil {
		return nil, fmt.Errorf("the request is not a %s: %w", reviewKind, err)
	}
	if version := admission.SchemeGroupVersion.String(); review.APIVersion != version || review.Kind != reviewKind ||
		review.Request == nil {
		return nil, fmt.Errorf("the request is not a %s of %s with a request", reviewKind, version)
	}
	ops, err := a.decide(review.Request)
	if err != nil {
		return nil, err
	}
	response := &admission.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if len(ops) > 0 {
		if response.Patch, err = json.Marshal(ops); err != nil {
			return nil, err
		}
		response.PatchType = new(admission.PatchTypeJSONPatch)
	}
	return json.Marshal(admission.AdmissionReview{TypeMeta: review.TypeMeta, Response: response})
}

func (a Reviewer) decide(r *admission.AdmissionRequest) ([]jsonpatch.Op, error) {
	if r.Operation != admission.Create && r.Operation != admission.Update {
		return nil, fmt.Errorf("the gate does not handle the operation %s", r.Operation)
	}
	edited, err := read(r.Object.Raw)
	if err != nil {
		return nil, err
	}
	var old *unstructured.Unstructured
	if r.Operation == admission.Update {
		if old, err = read(r.OldObject.Raw); err != nil {
			return nil, err
		}
	}
	if a.Engine(r.UserInfo.Username, r.Namespace) {
		return nil, nil
	}
	of := r.Resource.Group + "/" + r.Resource.Resource + "/" + r.SubResource
	if of == v1beta1.GroupVersion.Group+"/"+v1beta1.Resource.Resource+"/status" && old != nil {
		return DecideStatus(old.Object, edited.Object, r.UserInfo.Username), nil
	}
	k := workload.Of(r.Kind.Group, r.Kind.Kind)
	if !k.Known() || r.SubResource != "" {
		return nil, fmt.Errorf("the gate does not handle the resource %s/%s", r.Resource.Resource, r.SubResource)
	}
	e := Edit{New: edited.Object, User: r.UserInfo.Username}
	labelled := has(edited.GetLabels(), gate.Label)
	if old != nil {
		e.Old, labelled = old.Object, labelled || has(old.GetLabels(), gate.Label)
	}
	if !labelled {
		if e.Rollouts, err = a.Rollouts(r.Namespace); err != nil {
			return nil, err
		}
	}
	return Kind(k).Decide(e), nil
}

func read(raw []byte) (*unstructured.Unstructured, error) {
	if len(raw) == 0 {
		return nil, errors.New("an object is missing")
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("an object can't be read: %w", err)
	}
	return object, nil
}
