package author

import (
	"encoding/json"
	"fmt"

	admission "k8s.io/api/admission/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/review"
)

// reviewKind is the kind of the API server's request and of the response.
const reviewKind = "AdmissionReview"

// statusForbidden is the HTTP status of a refused edit.
const statusForbidden = 403

// maxTokens is how many names, values and brackets an object may have.
const maxTokens = 50_000

// Reviewer answers the reviews of edits of Rollouts and TrafficRoutings. Its functions provide what is not in the
// review.
type Reviewer struct {
	// Engine reports whether a user is the engine, whose edits pass.
	Engine func(user, namespace string) bool
	// May asks the API server whether a user has a permission.
	May func(question authorization.SubjectAccessReviewSpec) (bool, error)
}

// edit is a review without its objects.
type edit struct {
	review.Review
	user            authentication.UserInfo
	kind, namespace string
}

// Review answers a review. It returns an error for a body that is none, and if a permission can't be asked for.
func (a Reviewer) Review(request []byte) ([]byte, error) {
	e, err := read(request)
	if err != nil {
		return nil, err
	}
	if a.Engine(e.user.Username, e.namespace) {
		return e.answer("")
	}
	old, edited, err := e.objects()
	if err != nil {
		return e.answer(err.Error())
	}
	asked, err := Asked(old, edited)
	if err != nil {
		return e.answer(err.Error())
	}
	if len(asked) == 0 {
		return e.answer("")
	}
	refer := e.question(VerbRefer, Reference{Group: GroupRefer, Resource: ResourceRefer})
	if may, err := a.May(refer); may || err != nil {
		return e.answerUnless(err)
	}
	for _, r := range asked {
		may, err := a.May(e.question(VerbPatch, r))
		if err != nil {
			return nil, err
		}
		if !may {
			metadata, _ := edited["metadata"].(map[string]any)
			name, _ := metadata["name"].(string)
			return e.answer(Denied(e.user.Username, e.kind, e.namespace, name, r))
		}
	}
	return e.answer("")
}

// Refuse answers a review that isn't read to its end, from its beginning: it refuses the edit unless the engine makes
// it. why says why the review isn't read, and what to do.
func (a Reviewer) Refuse(beginning []byte, why string) ([]byte, error) {
	e, err := read(beginning)
	if e.Request["uid"] == nil || e.Check(admission.SchemeGroupVersion.String(), reviewKind) != nil {
		return nil, err
	}
	if e.user.Username != "" && a.Engine(e.user.Username, e.namespace) {
		return e.answer("")
	}
	return e.answer("whether the author may change what the object refers to can't be checked: " + why)
}

// read reads a review. Together with an error it returns what it has read until then.
func read(request []byte) (e edit, err error) {
	r, err := review.Read(request, "uid", "kind", "namespace", "userInfo", "object", "oldObject")
	if err != nil {
		err = fmt.Errorf("the request is not an %s: %w", reviewKind, err)
	} else {
		err = r.Check(admission.SchemeGroupVersion.String(), reviewKind)
	}
	e = edit{Review: r, kind: r.Member("kind", "kind"), namespace: r.Text("namespace")}
	if info := r.Request["userInfo"]; info != nil && err == nil {
		err = json.Unmarshal(info, &e.user)
	} else {
		e.user.Username = r.Member("userInfo", "username")
	}
	return e, err
}

// objects returns the object before and after the edit; old is nil if it is created.
func (e edit) objects() (old, edited map[string]any, err error) {
	for name, object := range map[string]*map[string]any{"oldObject": &old, "object": &edited} {
		raw := e.Request[name]
		if raw == nil || raw.Kind() == 'n' {
			continue
		}
		if err := review.CheckTokens(raw, maxTokens); err != nil {
			return nil, nil, err
		}
		if err := json.Unmarshal(raw, object); err != nil {
			return nil, nil, fmt.Errorf("the object can't be read: %w", err)
		}
	}
	return old, edited, nil
}

// question asks whether the author has a permission in the namespace of the edit.
func (e edit) question(verb string, of Reference) authorization.SubjectAccessReviewSpec {
	spec := authorization.SubjectAccessReviewSpec{User: e.user.Username, UID: e.user.UID, Groups: e.user.Groups,
		ResourceAttributes: &authorization.ResourceAttributes{Namespace: e.namespace, Verb: verb, Group: of.Group,
			Version: "*", Resource: of.Resource, Name: of.Name}}
	for name, values := range e.user.Extra {
		if spec.Extra == nil {
			spec.Extra = map[string]authorization.ExtraValue{}
		}
		spec.Extra[name] = authorization.ExtraValue(values)
	}
	return spec
}

// answerUnless allows the edit unless there is an error.
func (e edit) answerUnless(err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return e.answer("")
}

// answer allows the edit, or refuses it with a reason.
func (e edit) answer(refusal string) ([]byte, error) {
	response := &admission.AdmissionResponse{UID: types.UID(e.Text("uid")), Allowed: refusal == ""}
	if refusal != "" {
		response.Result = &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden,
			Code: statusForbidden, Message: refusal}
	}
	return json.Marshal(admission.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: e.APIVersion, Kind: e.Kind},
		Response: response})
}
