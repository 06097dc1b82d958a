package rollout

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
)

// labelledHome is a home cluster whose namespaces have these labels.
type labelledHome struct {
	homeStore
	labels map[string]string
}

func (h labelledHome) NamespaceLabels(context.Context, string) (map[string]string, error) {
	return h.labels, nil
}

// The users of commands count while the API server records them in that namespace. Otherwise they are marked, and with
// RequireGate commands in the status are refused.
func TestNames_Count_OnlyWhereRecorded(t *testing.T) {
	t.Parallel()
	var policies []unstructured.Unstructured
	for _, o := range guard.Policies(guard.Options{}, "v1", "v1") {
		policies = append(policies, *o)
	}
	installed := guard.Protection{Installed: guard.Find(policies)}
	off := map[string]string{guard.LabelGuard: guard.NamespaceOff}
	approve := kruise.NextAction{Kind: kruise.DoCommand, NameSource: kruise.NamedInStatus,
		Command: rollout.Command{Verb: rollout.VerbApprove, Actor: "cfo"}}
	unnamed := approve
	unnamed.Command.Actor = ""
	start := kruise.NextAction{Kind: kruise.DoStart, NameSource: kruise.NamedOnWorkload, By: "cfo"}
	edit := kruise.NextAction{Kind: kruise.DoReplan, NameSource: kruise.NamedOnRollout,
		Command: rollout.Command{Verb: rollout.VerbReplan, Actor: "cfo"}}
	for name, c := range map[string]struct {
		reason  string
		next    kruise.NextAction
		found   guard.Protection
		unknown string
		labels  map[string]string
		require bool
		actor   string
		refused string
	}{
		"Recorded":     {"the name is the API server's", approve, installed, "", nil, true, "cfo", ""},
		"Start":        {"the template's too", start, installed, "", nil, true, "cfo", ""},
		"Edit":         {"and the editor's", edit, installed, "", nil, true, "cfo", ""},
		"NotInstalled": {"anyone can write it", approve, guard.Protection{}, "", nil, false, "unverified: cfo", ""},
		"OptedOut":     {"the guard is off here", start, installed, "", off, false, "unverified: cfo", ""},
		"Required": {"the command is not executed", approve, guard.Protection{}, "", nil, true, "unverified: cfo",
			"the gate is not installed for the namespace shop"},
		"RequiredUnnamed": {"nor without a name", unnamed, guard.Protection{}, "", nil, true, "",
			"the gate is not installed for the namespace shop"},
		"RequiredUnknown": {"it is not known who sent it", approve, guard.Protection{},
			"this worker may not list policies", nil, true, "unverified: cfo", "is unknown: this worker may not list policies"},
		"RequiredEdit": {"an edit is no command in the status", edit, guard.Protection{}, "", nil, true,
			"unverified: cfo", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &v1beta1.Rollout{}
			r.Namespace, r.Name = "shop", "web"
			r.Spec.WorkloadRef = v1beta1.ObjectRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
			controller := &Controller{home: labelledHome{labels: c.labels}, options: Options{RequireGate: c.require,
				Log: slog.New(slog.DiscardHandler),
				Protection: func(context.Context, time.Duration) (guard.Protection, string, error) {
					return c.found, c.unknown, nil
				}}}
			got, err := controller.attribute(t.Context(), r, c.next)
			require.NoError(t, err)
			require.Equal(t, c.actor, got.Command.Actor+got.By, c.reason)
			require.Equal(t, c.refused != "", got.Command.Refuse != "", c.reason)
			require.Contains(t, got.Command.Refuse, c.refused)
		})
	}
}

// An API server that does not answer is asked again: the command waits.
func TestNames_AreAskedAgain_WhenAPIServerFails(t *testing.T) {
	t.Parallel()
	controller := &Controller{home: labelledHome{}, options: Options{Log: slog.New(slog.DiscardHandler),
		Protection: func(context.Context, time.Duration) (guard.Protection, string, error) {
			return guard.Protection{}, "", errors.New("no answer")
		}}}
	_, err := controller.attribute(t.Context(), &v1beta1.Rollout{}, kruise.NextAction{NameSource: kruise.NamedInStatus,
		Command: rollout.Command{Actor: "cfo"}})
	require.ErrorContains(t, err, "no answer")
}
