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

// budgets is the resource of PodDisruptionBudgets.
var budgets = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")

// NeedsEviction returns the permissions needed to evict pods, and to check beforehand what would block that.
func NeedsEviction(namespace string) []Permission {
	return append(Needs(budgets, namespace, "list"),
		Permission{Verb: "create", Resource: "pods", Subresource: "eviction", Namespace: namespace})
}

// Evict requests the eviction of a pod in this version, which a PodDisruptionBudget may forbid (BudgetRefusal).
func (c Cluster) Evict(ctx context.Context, namespace, name string, uid types.UID, version string) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	eviction := &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid,
			ResourceVersion: &version}},
	}
	// Like the typed client, but without its silent retries: the blocking budget has to be reported.
	return c.Client.PolicyV1().RESTClient().Post().AbsPath("/api/v1").Namespace(namespace).Resource("pods").Name(
		name).SubResource("eviction").MaxRetries(0).Body(eviction).Do(call).Error()
}

// severalBudgets is the API server's text when it refuses to evict a pod that two budgets cover, which it answers with
// a 500.
const severalBudgets = "This pod has more than one PodDisruptionBudget"

// budgetName matches the budget's name in the API server's answer.
var budgetName = regexp.MustCompile(`disruption budget (\S+)`)

// BudgetRefusal returns a sentence for users if a PodDisruptionBudget has forbidden an eviction, with its name; "" for
// any other error.
func BudgetRefusal(err error) string {
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
