package kube

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// budgets is where an API server serves PodDisruptionBudgets.
var budgets = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")

// NeedsEviction are the permissions that it takes to evict pods, and to see beforehand what holds that up.
func NeedsEviction(namespace string) []Permission {
	return append(Needs(budgets, namespace, "list"),
		Permission{Verb: "create", Resource: "pods", Subresource: "eviction", Namespace: namespace})
}

// Evict asks for a pod to be deleted, only as it was seen, unless a PodDisruptionBudget forbids that (HeldUp).
func (c Cluster) Evict(ctx context.Context, namespace, name string, uid types.UID, version string) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: namespace, Name: name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}},
	}
	// As the typed client does it, but without its silent retries: what holds it up is to be told.
	return c.Client.PolicyV1().RESTClient().Post().AbsPath("/api/v1").Namespace(namespace).Resource("pods").Name(name).SubResource("eviction").
		MaxRetries(0).Body(eviction).Do(call).Error()
}

// severalBudgets is how the API server begins its refusal to evict a pod that two budgets cover, which it answers as an error of its own.
const severalBudgets = "This pod has more than one PodDisruptionBudget"

// budgetName is how the API server names the budget in its answer.
var budgetName = regexp.MustCompile(`disruption budget (\S+)`)

// HeldUp is the sentence for people when a PodDisruptionBudget has forbidden an eviction, with its name; "" for any other error.
func HeldUp(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	said := status.Status()
	if said.Code == http.StatusInternalServerError && strings.Contains(said.Message, severalBudgets) {
		return "several PodDisruptionBudgets cover the same pods, so that Kubernetes evicts none of them: leave only one"
	}
	if said.Code != http.StatusTooManyRequests || said.Details == nil {
		return ""
	}
	for _, cause := range said.Details.Causes {
		if cause.Type != policyv1.DisruptionBudgetCause {
			continue
		}
		if named := budgetName.FindStringSubmatch(cause.Message); named != nil {
			return "PodDisruptionBudget " + named[1] + " doesn't allow it now (" + Line(cause.Message) + ")"
		}
		return "a PodDisruptionBudget doesn't allow it now (" + Line(cause.Message) + ")"
	}
	return ""
}

// Budgets are the PodDisruptionBudgets of a namespace.
func (c Cluster) Budgets(ctx context.Context, namespace string) ([]policyv1.PodDisruptionBudget, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := c.Client.PolicyV1().PodDisruptionBudgets(namespace).List(call, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}
