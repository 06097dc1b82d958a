package cli_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/rollout"
)

func TestOutputForScripts(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("GET /api/v1/rollouts", func(request) answer {
		return answerJSON(http.StatusOK, client.RolloutList{Items: []client.RolloutSummary{
			{Party: "default", Namespace: "shop", Name: "web", Phase: rollout.PhaseProgressing, CreatedAt: noon},
			{Party: "default", Namespace: "bank", Name: "db", Phase: rollout.PhaseHealthy, CreatedAt: noon},
		}})
	})
	api.on("GET /api/v1/rollouts/shop/web", func(request) answer { return answerJSON(http.StatusOK, webRollout()) })
	api.on("GET /api/v1/tasks", func(request) answer {
		return answerJSON(http.StatusOK, client.TaskList{Items: []client.TaskSummary{}})
	})
	for reason, c := range map[string]struct {
		args []string
		want string
	}{
		"names are accepted by other commands": {[]string{"rollout", "list", "-o", "name"}, "shop/web\nbank/db\n"},
		"one object has one name":              {[]string{"rollout", "get", "shop/web", "-o", "name"}, "shop/web\n"},
		"an empty list has no names":           {[]string{"task", "list", "-o", "name"}, ""},
		"a path selects a value": {[]string{"rollout", "get", "shop/web", "-o", "jsonpath={.phase}"},
			"Progressing\n"},
		"a path selects values of a list": {[]string{"rollout", "list", "-o", "jsonpath={.items[*].name}"},
			"web db\n"},
		"a missing value is empty": {[]string{"rollout", "get", "shop/web", "-o", "jsonpath={.frozen}"},
			""},
	} {
		require.Equal(t, outcome{out: c.want}, slipway(t, api, c.args...), reason)
	}
	for _, form := range []string{"xml", "jsonpath={.phase"} {
		require.Equal(t, app.ExitUsage, slipway(t, api, "rollout", "list", "-o", form).code,
			"%s is rejected before a request is sent", form)
	}
}

func TestHelp_FitsTerminal(t *testing.T) {
	t.Parallel()
	commands := [][]string{{}, {"validate"}, {"config"}, {"repair"}, {"healthcheck"}, {"fetch"}, {"version"},
		{"plan", "run"},
		{"task", "watch"}, {"task", "report"},
		{"rollout", "start"}, {"rollout", "wait"}, {"rollout", "history"}, {"serving", "create"}, {"serving", "update"}}
	verbs := map[string]string{"plan": "", "service": "", "party": "", "trafficrouting": "", "appimage": "",
		"task":    "pause resume stop watch",
		"serving": "approve pause resume stop watch history",
		"rollout": "approve promote pause resume rollback stop jump retry watch"}
	for noun, own := range verbs {
		for _, verb := range append(strings.Fields(own), "list", "get", "delete", "apply") {
			commands = append(commands, []string{noun, verb})
		}
	}
	for _, command := range commands {
		help := slipway(t, nil, append(command, "--help")...).out
		before, examples, _ := strings.Cut(help, "Examples:")
		_, flags, _ := strings.Cut(examples, "\nFlags:")
		for _, line := range strings.Split(before+flags, "\n") {
			require.LessOrEqual(t, render.DisplayWidth(line), 100, "%s: %s", command, line)
		}
	}
}
