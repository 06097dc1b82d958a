package task

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/plan"
)

// WatchExitCodes is the part of the help that lists the exit codes of a watch.
const WatchExitCodes = `  0    Succeeded
  1    Failed, or the command itself failed
  2    wrong usage
  3    Stopped
  4    Interrupted, with --exit-on-interrupted
  5    Paused, or waits for a decision on a rollout of one of its services, with --exit-on-paused
  124  --timeout passed
  130  ended by Ctrl-C; the task goes on`

// Words are what the help says of a watch.
var Words = follow.Words{Noun: "task", End: "to its end", Interrupted: "the task is Interrupted", Paused: "the task is Paused, or waits for a decision on a rollout"}

func watchCommand(n *tasks) *cobra.Command {
	command := n.WatchCommand(`Follow a task to its end. A terminal shows waves and services as they change; a pipe gets one line for each
change, and -o json or yaml the whole task at each change. A lost connection is opened again, however long that takes.

A task that is Paused or Interrupted waits for a person, and so does this command, unless told otherwise. The exit code says how the task
ended:

`+WatchExitCodes, Words, func(ctx context.Context, api *client.Client, id string, o follow.Options) error {
		return Watch(ctx, n.App, api, id, o)
	})
	command.Example = `  slipway task watch shop-20261102093000-k3v9q
  slipway task watch shop-20261102093000-k3v9q --timeout 30m --exit-on-interrupted --exit-on-paused`
	return command
}

// Watch follows the task and ends with the exit code that says how it ended.
func Watch(ctx context.Context, a *app.App, api *client.Client, id string, options follow.Options) error {
	var names Names
	return follow.Watch(ctx, a, follow.Watched[plan.Task]{
		Called: "task " + id, Again: "slipway task watch " + id,
		Read: func(ctx context.Context) (plan.Task, error) {
			task, err := apiclient.Read[client.Task](api.GetTask(ctx, id))
			if a.Output == app.Table && err == nil {
				names = ReadNames(ctx, api)
			}
			return task.Value, err
		},
		Open: func(ctx context.Context, last *string) (*http.Response, error) {
			return api.WatchTask(ctx, id, &client.WatchTaskParams{LastEventID: last})
		},
		Over: Over, Timeout: options.Timeout,
		Ends: func(t plan.Task) (int, bool) { return ends(options, t) },
		Portrait: follow.Portrait[plan.Task]{
			Fit: func(d render.Drawing, t plan.Task, width, height int) []string {
				return Fit(d, names.in(t), width, height)
			},
			Changes: func(before, now plan.Task, look time.Time) []follow.Change {
				return Changes(before, names.in(now), look)
			},
			Epilogue: Epilogue,
		},
	})
}

// ends says with which exit code the watch ends in this state of the task; ok is false while it goes on.
func ends(o follow.Options, t plan.Task) (code int, ok bool) {
	switch {
	case t.State == plan.TaskInterrupted && o.ExitOnInterrupted:
		return app.ExitInterrupted, true
	case o.ExitOnPaused && (t.State == plan.TaskPaused || waitsForPerson(t)):
		return app.ExitPaused, true
	case !Over(t):
		return 0, false
	case t.State == plan.TaskStopped:
		return app.ExitStopped, true
	case t.State == plan.TaskFailed:
		return app.ExitFailure, true
	}
	return app.ExitOK, true
}

// waitsForPerson says that nothing of the task goes on until somebody decides on one of its rollouts.
func waitsForPerson(t plan.Task) bool {
	return t.WaitingFor != nil && t.WaitingFor.Kind != plan.WaitWindow
}

// Over says whether nothing of the task will change any more. A failed task waits for what still runs beside the failure.
func Over(t plan.Task) bool { return t.State.Final() && t.FinishedAt != nil }

// Epilogue is the last word on a task, and what to do next.
func Epilogue(t plan.Task) string {
	next := fmt.Sprintf("Report: slipway task report %s", t.ID)
	switch {
	case waitsForPerson(t):
		return fmt.Sprintf("task %s waits: %s\n%s", t.ID, t.WaitingFor.Message, strings.Join(approvals(t), "\n"))
	case !t.State.Final():
		next = fmt.Sprintf("To go on: slipway task resume %s", t.ID)
	}
	return fmt.Sprintf("task %s is %s%s\n%s", t.ID, t.State, render.After(t.StartedAt, t.FinishedAt), next)
}

// Changes tell how a task came from one state to the next, in the order of time. A task that was not seen before is told as far as it is.
// What the task gives no time for has that of the look.
func Changes(before, now plan.Task, look time.Time) []follow.Change {
	var lines follow.Changes
	lines.Decisions(now.History[min(len(before.History), len(now.History)):], look)
	waves := now.Waves()
	for n, wave := range waves {
		if !begun(before, wave) && begun(now, wave) {
			lines.Tell(beganAt(now, wave, look), "wave %d of %d begins: priority %d, %s",
				n+1, len(waves), wave.Priority, render.Count(len(wave.Items), "service"))
		}
		for _, i := range wave.Items {
			old := plan.ServiceStatus{State: plan.ItemPending}
			if i < len(before.Services) {
				old = before.Services[i]
			}
			service := now.Services[i]
			if service.State == plan.ItemSkipped && Over(now) { // it has no time of its own: that it never begins is known at the task's end
				service.FinishedAt = now.FinishedAt
			}
			tellService(&lines, old, service, look)
		}
	}
	if before.State != now.State || before.Reason != now.Reason {
		at := look
		if now.State.Final() {
			at = render.TimeOr(now.FinishedAt, look)
		}
		lines.Tell(at, "task %s is %s%s", now.ID, now.State, render.Because(now.Reason))
	}
	return lines.InOrder()
}

func begun(t plan.Task, wave plan.Wave) bool {
	for _, i := range wave.Items {
		if i < len(t.Services) && t.Services[i].State != plan.ItemPending && t.Services[i].State != plan.ItemSkipped {
			return true
		}
	}
	return false
}

// beganAt is when the first service of the wave was taken up.
func beganAt(t plan.Task, wave plan.Wave, look time.Time) time.Time {
	first := look
	for _, i := range wave.Items {
		if at := render.TimeOr(t.Services[i].StartedAt, look); at.Before(first) {
			first = at
		}
	}
	return first
}

// timeOf is when the service came into its state; its workloads have no times of their own.
func timeOf(before, now plan.ServiceStatus, look time.Time) time.Time {
	switch {
	case now.State.Ended():
		return render.TimeOr(now.FinishedAt, look)
	case before.StartedAt == nil:
		return render.TimeOr(now.StartedAt, look)
	}
	return look
}

func tellService(lines *follow.Changes, before, now plan.ServiceStatus, look time.Time) {
	name := render.OneLine(string(now.ServiceID))
	told := before.State != now.State || (before.Reason != now.Reason && now.State != plan.ItemPending)
	if told {
		lines.Tell(timeOf(before, now, look), "  service %s: %s %s%s%s", name, Operation(now.Deployment, now.Method), now.State,
			render.After(now.StartedAt, now.FinishedAt), render.Because(now.Reason))
	}
	at := look
	if now.State.Ended() {
		at = render.TimeOr(now.FinishedAt, look)
	}
	for n, w := range now.Workloads {
		if told && w.State == now.State && saidByPart(now) {
			continue
		}
		old := plan.WorkloadStatus{State: plan.ItemPending}
		if n < len(before.Workloads) {
			old = before.Workloads[n]
		}
		if old.State != w.State || old.Message != w.Message {
			lines.Tell(at, "  service %s: %s %s%s", name, workloadName(w), w.State, render.Because(w.Message))
		}
	}
}

// workloadName reads "Deployment shop/order", with the party in front unless it is the default one.
func workloadName(w plan.WorkloadStatus) string {
	name := render.OneLine(w.Kind + " " + w.Namespace + "/" + w.Name)
	if w.Party != "" && w.Party != catalog.DefaultParty {
		return render.OneLine(w.Party) + ": " + name
	}
	return name
}

// Names are the display names of services by their IDs.
type Names map[string]string

// ReadNames reads them from the catalogue. They are a help to people: without them the IDs are shown alone.
func ReadNames(ctx context.Context, api *client.Client) Names {
	names := Names{}
	services, err := apiclient.AllPages(0, func(limit int, cursor *string) ([]client.ServiceSummary, string, error) {
		return apiclient.ReadPage[client.ServiceSummary](api.ListServices(ctx, &client.ListServicesParams{Limit: &limit, Cursor: cursor}))
	})
	if err != nil {
		return nil
	}
	for _, s := range services {
		names[s.ID] = s.DisplayName
	}
	return names
}

// Beside is the ID of a service with its display name: "111 (order service)".
func (n Names) Beside(id string) string {
	if name := n[id]; name != "" && name != id {
		return id + " (" + name + ")"
	}
	return id
}

// in is the task as it is drawn, with names beside the IDs of its services.
func (n Names) in(t plan.Task) plan.Task {
	t.Services = slices.Clone(t.Services)
	for i := range t.Services {
		t.Services[i].ServiceID = plan.ServiceID(n.Beside(string(t.Services[i].ServiceID)))
	}
	return t
}

// approvals are the commands by which the rollouts are approved that the task waits for.
func approvals(t plan.Task) (all []string) {
	for _, service := range t.Services {
		for _, w := range service.Workloads {
			if hint := approval(w); hint != "" {
				all = append(all, hint)
			}
		}
	}
	return all
}
