package author

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestUnchecked(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	shop := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shop"}}
	check := Check{Since: since, Token: Token("policy", "binding"), Namespaces: shop}
	for name, c := range map[string]struct {
		reason  string
		created time.Duration
		mark    string
		checks  []Check
		team    string
		says    string
	}{
		"Younger": {"A younger object was checked at its creation, and at each edit.", settling, "", []Check{check},
			"shop", ""},
		"Older": {"An older one was not.", -time.Hour, "", []Check{check}, "shop",
			"kubectl -n apps annotate rollouts.rollouts.kruise.io web slipway.io/references-checked=" + check.Token},
		"Settling": {"API servers need a moment to apply a policy.", settling - time.Second, "", []Check{check}, "shop",
			"it is older than the check"},
		"Marked": {"The token is known only since the check exists: its edit was checked.", -time.Hour, check.Token,
			[]Check{check}, "shop", ""},
		"Forged": {"Another text is no token.", -time.Hour, "yes", []Check{check}, "shop", "it is older"},
		"Recreated": {"A policy that was deleted meanwhile has checked nothing.", -time.Hour, Token("policy", "other"),
			[]Check{check}, "shop", "it is older"},
		"Elsewhere": {"A check of other namespaces does not count.", time.Hour, "", []Check{check}, "pay",
			"isn't checked in this namespace"},
		"None": {"Nothing checks.", time.Hour, check.Token, nil, "shop", "slipway guard install"},
		"Another": {"One check is enough.", -time.Hour, "", []Check{check, {Since: since.Add(-2 * time.Hour)}}, "shop",
			""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			why := Unchecked(Object{Resource: ResourceRollouts, Namespace: "apps", Name: "web",
				Created: since.Add(c.created), Mark: c.mark}, c.checks, map[string]string{"team": c.team})
			if c.says == "" {
				require.Empty(t, why, c.reason)
				return
			}
			require.Contains(t, why, c.says, c.reason)
		})
	}
	require.Contains(t, Refusal("why"), "--require-gate")
}
