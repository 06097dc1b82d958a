package kube

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	authv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// reviewPath is the API path of reviews of the caller's own permissions.
const reviewPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

// refusals distinguishes the two kinds of 403: a missing permission, and the refusal of an admission rule (a webhook, a
// policy, a quota, pod security). The response does not distinguish them, so it requests an access review for the
// permission that the request needed.
type refusals struct{ base http.RoundTripper }

func reviewRefusals(base http.RoundTripper) http.RoundTripper { return &refusals{base: base} }

// RoundTrip sends a request. If it is answered with 403 although this process has the permission, it sends the request
// once more, since an API server that has just started may refuse before it has loaded its rules; a second 403 is
// marked with causePermitted.
func (r *refusals) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := r.base.RoundTrip(req)
	if err != nil || answer.StatusCode != http.StatusForbidden || strings.HasSuffix(req.URL.Path, reviewPath) ||
		!r.permitted(req) {
		return answer, err
	}
	if again := repetition(req); again != nil {
		drain(answer)
		answer, err = r.base.RoundTrip(again)
		if err != nil || answer.StatusCode != http.StatusForbidden {
			return answer, err
		}
	}
	return markPermitted(answer)
}

// repetition returns a copy of a request, or nil if its body cannot be sent again.
func repetition(req *http.Request) *http.Request {
	again := req.Clone(req.Context())
	if req.Body == nil || req.Body == http.NoBody {
		return again
	}
	if req.GetBody == nil {
		return nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil
	}
	again.Body = body
	return again
}

// permitted reports whether reviews confirm all permissions that a request needs. A failed review counts as no: the
// request may be retried.
func (r *refusals) permitted(req *http.Request) bool {
	return !slices.ContainsFunc(specsOf(req), func(spec authv1.SelfSubjectAccessReviewSpec) bool {
		return !r.review(req, spec)
	})
}

// review asks with the headers that identify the request's account.
func (r *refusals) review(of *http.Request, spec authv1.SelfSubjectAccessReviewSpec) bool {
	body, err := json.Marshal(&authv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"},
		Spec:     spec})
	if err != nil {
		return false
	}
	prefix, _ := splitPath(of.URL.Path)
	to := url.URL{Scheme: of.URL.Scheme, Host: of.URL.Host, Path: prefix + reviewPath}
	req, err := http.NewRequestWithContext(of.Context(), http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		return false
	}
	for name, values := range of.Header {
		if name == "Authorization" || name == "User-Agent" || strings.HasPrefix(name, "Impersonate-") {
			req.Header[name] = values
		}
	}
	req.Header.Set("Content-Type", runtime.ContentTypeJSON)
	req.Header.Set("Accept", runtime.ContentTypeJSON)
	answer, err := r.base.RoundTrip(req)
	if err != nil {
		return false
	}
	defer drain(answer)
	var review authv1.SelfSubjectAccessReview
	return answer.StatusCode == http.StatusCreated && json.NewDecoder(answer.Body).Decode(&review) == nil &&
		review.Status.Allowed
}

// splitPath splits a URL's path into the part before the API (a proxy's prefix) and the segments of the API path.
func splitPath(path string) (prefix string, steps []string) {
	for _, root := range []string{"/apis/", "/api/"} {
		if i := strings.Index(path, root); i >= 0 {
			return path[:i], strings.Split(strings.Trim(path[i:], "/"), "/")
		}
	}
	return "", nil
}

// verbs maps HTTP methods that write to RBAC verbs.
var verbs = map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch",
	http.MethodDelete: "delete"}

// specsOf returns the permissions that a request needs. A server-side apply needs two: it may have to create the
// object.
func specsOf(req *http.Request) []authv1.SelfSubjectAccessReviewSpec {
	_, steps := splitPath(req.URL.Path)
	a, ok := attributesOf(steps)
	if !ok {
		return []authv1.SelfSubjectAccessReviewSpec{{NonResourceAttributes: &authv1.NonResourceAttributes{Path: req.URL.Path,
			Verb: strings.ToLower(req.Method)}}}
	}
	switch a.Verb = verbs[req.Method]; {
	case a.Verb == "delete" && a.Name == "":
		a.Verb = "deletecollection"
	case a.Verb != "":
	case req.URL.Query().Get("watch") != "" && req.URL.Query().Get("watch") != "false":
		a.Verb = "watch"
	case a.Name == "":
		a.Verb = "list"
	default:
		a.Verb = "get"
	}
	out := []authv1.SelfSubjectAccessReviewSpec{{ResourceAttributes: &a}}
	if a.Verb == "patch" && strings.HasPrefix(req.Header.Get("Content-Type"), "application/apply-patch") {
		create := a
		create.Verb = "create"
		out = append(out, authv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &create})
	}
	return out
}

// attributesOf parses the segments of /api/v1/namespaces/shop/pods/web/status or
// /apis/apps/v1/namespaces/shop/deployments/web; ok is false for anything else.
func attributesOf(steps []string) (a authv1.ResourceAttributes, ok bool) {
	switch {
	case len(steps) >= 3 && steps[0] == "api":
		a.Version, steps = steps[1], steps[2:]
	case len(steps) >= 4 && steps[0] == "apis":
		a.Group, a.Version, steps = steps[1], steps[2], steps[3:]
	default:
		return a, false
	}
	if steps[0] == "namespaces" && len(steps) > 1 {
		a.Namespace = steps[1]
		if len(steps) > 2 && steps[2] != "status" && steps[2] != "finalize" {
			steps = steps[2:]
		}
	}
	for i, field := range []*string{&a.Resource, &a.Name, &a.Subresource} {
		if i < len(steps) {
			*field = steps[i]
		}
	}
	return a, true
}

// statuses decodes an API server's answers in any encoding that clients may have requested.
var statuses = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.Unversioned)
	return serializer.NewCodecFactory(scheme).UniversalDeserializer()
}()

// markPermitted adds causePermitted to the answer.
func markPermitted(answer *http.Response) (*http.Response, error) {
	said, err := io.ReadAll(answer.Body)
	drain(answer)
	if err != nil {
		return nil, err
	}
	status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden,
		Reason: metav1.StatusReasonForbidden, Message: string(said)}
	if object, _, err := statuses.Decode(said, nil, nil); err == nil {
		if decoded, ok := object.(*metav1.Status); ok {
			status = *decoded
		}
	}
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	if status.Details == nil {
		status.Details = &metav1.StatusDetails{}
	}
	status.Details.Causes = append(status.Details.Causes, metav1.StatusCause{Type: causePermitted})
	body, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	answer.Header.Set("Content-Type", runtime.ContentTypeJSON)
	answer.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return answer, nil
}

// drain frees an answer's connection for reuse.
func drain(answer *http.Response) {
	_, _ = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
}
