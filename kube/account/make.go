package account

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/account"
)

// fieldManager is the field manager of the account and its rights.
const fieldManager = "slipway-account"

// result is what was made.
type result struct {
	// rights is one right of each role.
	rights []kube.Permission
	// missing are the released namespaces that do not exist yet.
	missing []string
}

// make makes the account and grants it its rights; it can be repeated. An account that something else has made keeps
// the rights that it has: they are its administrator's decision.
func (o *Own) make(ctx context.Context) (result, error) {
	var made result
	for _, name := range o.o.Namespaces {
		if err := o.ensureNamespace(ctx, name); err != nil {
			return made, err
		}
	}
	ours, err := o.ensureAccount(ctx)
	if err != nil || !ours {
		return made, err
	}
	missing := map[string]bool{}
	for _, m := range o.o.Manifests {
		objects, err := o.o.Account.Objects(m)
		if err != nil {
			return made, err
		}
		if err := o.grant(ctx, m, objects, missing); err != nil {
			return made, err
		}
		made.rights = append(made.rights, sample(objects, missing)...)
	}
	for _, name := range o.o.Account.Released {
		if missing[name] {
			made.missing = append(made.missing, name)
		}
	}
	return made, nil
}

// grant applies the roles and bindings of a manifest. What is in a namespace that does not exist is left out and
// recorded in missing. An optional manifest that may not be granted is left out.
func (o *Own) grant(ctx context.Context, m account.Manifest, objects []*unstructured.Unstructured,
	missing map[string]bool) error {
	var roles, bindings []*unstructured.Unstructured
	for _, object := range objects {
		if object.Object["roleRef"] == nil {
			roles = append(roles, object)
		} else {
			bindings = append(bindings, object)
		}
	}
	err := o.applyAll(ctx, roles, missing)
	if err == nil { // who may bind a role depends on what it contains
		err = o.applyAll(ctx, bindings, missing)
	}
	switch {
	case err == nil:
		return nil
	case m.Optional && !unanswered(err):
		o.o.Log.InfoContext(ctx, "the service account of this process does not get optional rights", "account",
			o.o.Account.User(), "manifest", "deploy/rbac/"+m.Name, "why", kube.Text(err))
		for _, object := range objects {
			missing[key(object)] = true
		}
		return nil
	}
	return fmt.Errorf("the rights of deploy/rbac/%s: %w", m.Name, err)
}

// applyAll applies objects, except in namespaces that do not exist.
func (o *Own) applyAll(ctx context.Context, objects []*unstructured.Unstructured, missing map[string]bool) error {
	var mu sync.Mutex
	var jobs []func(ctx context.Context) error
	for _, object := range objects {
		jobs = append(jobs, func(ctx context.Context) error {
			err := o.apply(ctx, object)
			if !apierrors.IsNotFound(err) || object.GetNamespace() == "" {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			missing[object.GetNamespace()] = true
			return nil
		})
	}
	return kube.Parallel(ctx, jobs)
}

// key identifies a role or binding among those that are missing.
func key(o *unstructured.Unstructured) string { return o.GetNamespace() + "/" + o.GetName() }

func (o *Own) apply(ctx context.Context, object *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, kube.CallTimeout)
	defer cancel()
	_, err := o.person.Resource(kube.ResourceOf(object)).Namespace(object.GetNamespace()).Apply(ctx, object.GetName(),
		object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}

// sample returns one right of each role that was granted.
func sample(objects []*unstructured.Unstructured, missing map[string]bool) (rights []kube.Permission) {
	for _, object := range objects {
		rules, _, _ := unstructured.NestedSlice(object.Object, "rules")
		if len(rules) == 0 || missing[object.GetNamespace()] || missing[key(object)] {
			continue
		}
		rule, _ := rules[0].(map[string]any)
		first := func(field string) string {
			values, _, _ := unstructured.NestedStringSlice(rule, field)
			if len(values) == 0 {
				return ""
			}
			return values[0]
		}
		// a ClusterRole may be bound in namespaces only
		if object.GetKind() == "ClusterRole" && !boundInCluster(objects, object.GetName()) {
			continue
		}
		resource, subresource, _ := strings.Cut(first("resources"), "/")
		rights = append(rights, kube.Permission{Verb: first("verbs"), Group: first("apiGroups"), Resource: resource,
			Subresource: subresource, Name: first("resourceNames"), Namespace: object.GetNamespace()})
	}
	return rights
}

func boundInCluster(objects []*unstructured.Unstructured, role string) bool {
	for _, object := range objects {
		bound, _, _ := unstructured.NestedString(object.Object, "roleRef", "name")
		if object.GetKind() == "ClusterRoleBinding" && bound == role {
			return true
		}
	}
	return false
}

func (o *Own) ensureNamespace(ctx context.Context, name string) error {
	_, err := o.person.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = o.person.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// ensureAccount creates the service account and reports whether a process like this one has made it.
func (o *Own) ensureAccount(ctx context.Context) (ours bool, err error) {
	a := o.o.Account
	accounts := o.person.CoreV1().ServiceAccounts(a.Namespace)
	found, err := accounts.Get(ctx, a.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		found, err = accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: a.Name,
			Labels: map[string]string{account.Label: a.Name}}, AutomountServiceAccountToken: new(false)},
			metav1.CreateOptions{FieldManager: fieldManager})
		if apierrors.IsAlreadyExists(err) { // by another process, at the same time
			found, err = accounts.Get(ctx, a.Name, metav1.GetOptions{})
		}
	}
	if err != nil {
		return false, err
	}
	if ours = found.Labels[account.Label] == a.Name; !ours {
		o.o.Log.InfoContext(ctx, "the service account exists already and keeps the rights that it has", "account",
			a.User())
	}
	return ours, nil
}

// tokenLife is the life of a token that is asked for. The API server may grant a shorter one.
const tokenLife = time.Hour

// renew requests a token.
func (o *Own) renew(ctx context.Context) error {
	a := o.o.Account
	begun := time.Now()
	answer, err := o.person.CoreV1().ServiceAccounts(a.Namespace).CreateToken(ctx, a.Name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: new(int64(tokenLife.Seconds()))}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	o.set(func() {
		o.token = token{text: answer.Status.Token, issued: begun, until: answer.Status.ExpirationTimestamp.Time}
	})
	return nil
}
