package task

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/plan"
)

// WatchExitCodes is the part of the help that lists the exit codes of a watch.
const WatchExitCodes = `  0    Succeeded
  1    Failed, or the command itself failed
  2    wrong usage
  3    Stopped
  4    Interrupted, with --exit-on-interrupted
  5    Paused, or waiting for a decision about a rollout, with --exit-on-paused
  124  --timeout passed
  130  interrupted by Ctrl-C; the task continues`

// WatchHelp are the help texts of the watch flags.
var WatchHelp = follow.FlagTexts{Noun: "task", Until: "until it ends", Interrupted: "the task is Interrupted",
	Paused: "the task is Paused, or waits for a decision about a rollout"}

// exitCodeOf returns the exit code of the watch in this state of the task; ok is false while the watch continues.
func exitCodeOf(o follow.Options, t plan.Task) (code int, ok bool) {
	switch {
	case t.State == plan.TaskInterrupted && o.ExitOnInterrupted:
		return app.ExitInterrupted, true
	case o.ExitOnPaused && (t.State == plan.TaskPaused || needsUserAction(t)):
		return app.ExitPaused, true
	case !Ended(t):
		return 0, false
	case t.State == plan.TaskStopped:
		return app.ExitStopped, true
	case t.State == plan.TaskFailed:
		return app.ExitFailure, true
	}
	return app.ExitOK, true
}

// needsUserAction reports whether the task continues only after a user's decision about one of its rollouts.
func needsUserAction(t plan.Task) bool {
	return t.WaitingFor != nil && t.WaitingFor.Kind != plan.WaitWindow
}

// Ended reports whether the task has ended, so that its state no longer changes. A failed task ends only when its other
// running services have finished.
func Ended(t plan.Task) bool { return t.State.Final() && t.FinishedAt != nil }

// Summary returns the outcome of a task and what to do next.
func Summary(t plan.Task) string {
	next := fmt.Sprintf("Report: slipway task report %s", t.ID)
	switch {
	case needsUserAction(t):
		return fmt.Sprintf("task %s is waiting: %s\n%s", t.ID, t.WaitingFor.Message,
			strings.Join(approvalHints(t), "\n"))
	case !t.State.Final():
		next = fmt.Sprintf("To continue: slipway task resume %s", t.ID)
	}
	return fmt.Sprintf("task %s is %s%s\n%s", t.ID, t.State, render.DurationSuffix(t.StartedAt, t.FinishedAt), next)
}

// Changes returns the differences between two states of a task, a line each, sorted by time. Compared with an empty
// state, it returns the whole progress. A change without a time gets the time of the read, look.
func Changes(before, now plan.Task, look time.Time) []follow.Change {
	var lines follow.Changes
	lines.AddDecisions(follow.NewDecisions(before.History, now.History), look)
	waves := now.Waves()
	for n, wave := range waves {
		if !hasStarted(before, wave) && hasStarted(now, wave) {
			lines.Add(startedAt(now, wave, look), "wave %d of %d started: priority %d, %s",
				n+1, len(waves), wave.Priority, phrase.Count(len(wave.Items), "service"))
		}
		for _, i := range wave.Items {
			old := plan.ServiceStatus{State: plan.ItemPending}
			if i < len(before.Services) {
				old = before.Services[i]
			}
			service := now.Services[i]
			// a skipped service has no time: it is certain only when the task ends
			if service.State == plan.ItemSkipped && Ended(now) {
				service.FinishedAt = now.FinishedAt
			}
			addServiceChanges(&lines, old, service, look)
		}
	}
	if before.State != now.State || before.Reason != now.Reason {
		at := look
		if now.State.Final() {
			at = render.TimeOrDefault(now.FinishedAt, look)
		}
		lines.Add(at, "task %s is %s%s", now.ID, now.State, render.ReasonSuffix(now.Reason))
	}
	return lines.Sorted()
}

func hasStarted(t plan.Task, wave plan.Wave) bool {
	for _, i := range wave.Items {
		if i < len(t.Services) && t.Services[i].State != plan.ItemPending && t.Services[i].State != plan.ItemSkipped {
			return true
		}
	}
	return false
}

// startedAt returns when the first service of the wave started.
func startedAt(t plan.Task, wave plan.Wave, look time.Time) time.Time {
	first := look
	for _, i := range wave.Items {
		if at := render.TimeOrDefault(t.Services[i].StartedAt, look); at.Before(first) {
			first = at
		}
	}
	return first
}

// timeOf returns when the service reached its state. Its workloads have no times.
func timeOf(before, now plan.ServiceStatus, look time.Time) time.Time {
	switch {
	case now.State.Ended():
		return render.TimeOrDefault(now.FinishedAt, look)
	case before.StartedAt == nil:
		return render.TimeOrDefault(now.StartedAt, look)
	}
	return look
}

func addServiceChanges(lines *follow.Changes, before, now plan.ServiceStatus, look time.Time) {
	name := render.OneLine(string(now.ServiceID))
	changed := before.State != now.State || (before.Reason != now.Reason && now.State != plan.ItemPending)
	if changed {
		lines.Add(timeOf(before, now, look), "  service %s: %s %s%s%s", name, Operation(now.Deployment, now.Method),
			now.State, render.DurationSuffix(now.StartedAt, now.FinishedAt), render.ReasonSuffix(now.Reason))
	}
	at := look
	if now.State.Ended() {
		at = render.TimeOrDefault(now.FinishedAt, look)
	}
	for n, w := range now.Workloads {
		if changed && w.State == now.State && repeatsReason(now) {
			continue
		}
		old := plan.WorkloadStatus{State: plan.ItemPending}
		if n < len(before.Workloads) {
			old = before.Workloads[n]
		}
		if old.State != w.State || old.Message != w.Message {
			lines.Add(at, "  service %s: %s %s%s", name, workloadName(w), w.State, render.ReasonSuffix(w.Message))
		}
	}
}

// workloadName returns, for example, "Deployment shop/order", preceded by the party unless it is the default one.
func workloadName(w plan.WorkloadStatus) string {
	name := render.OneLine(w.Kind + " " + w.Namespace + "/" + w.Name)
	if w.Party != "" && w.Party != catalog.DefaultParty {
		return render.OneLine(w.Party) + ": " + name
	}
	return name
}

// Names maps service IDs to display names.
type Names map[string]string

// ReadNames reads the names from the catalogue. They are optional: after an error, only the IDs are shown.
func ReadNames(ctx context.Context, api *client.Client) Names {
	names := Names{}
	services, err := apiclient.ReadAll[client.ServiceSummary](ctx, api,
		apiclient.Request{Call: apiclient.List((*client.Client).ListServices)}, 0)
	if err != nil {
		return nil
	}
	for _, s := range services {
		names[s.ID] = s.DisplayName
	}
	return names
}

// WithName returns the ID of a service with its display name: "111 (order service)".
func (n Names) WithName(id string) string {
	if name := n[id]; name != "" && name != id {
		return id + " (" + name + ")"
	}
	return id
}

// applyTo returns the task for drawing, with display names after the service IDs.
func (n Names) applyTo(t plan.Task) plan.Task {
	t.Services = slices.Clone(t.Services)
	for i := range t.Services {
		t.Services[i].ServiceID = plan.ServiceID(n.WithName(string(t.Services[i].ServiceID)))
	}
	return t
}

// approvalHints returns the commands for the rollouts for which the task waits.
func approvalHints(t plan.Task) (all []string) {
	for _, service := range t.Services {
		for _, w := range service.Workloads {
			if hint := approvalHint(w); hint != "" {
				all = append(all, hint)
			}
		}
	}
	return all
}
