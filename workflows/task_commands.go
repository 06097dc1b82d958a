package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workloadops"
)

// offerVerbs has people's verbs end in the inbox.
func (r *taskRun) offerVerbs() error {
	return offer(r.ctx, planMenu, func(ctx workflow.Context, verb plan.Verb, request VerbRequest) (VerbResponse, error) {
		c := &command{verb: verb, request: request}
		r.box.push(c)
		if err := workflow.Await(ctx, func() bool { return c.response != nil }); err != nil {
			return VerbResponse{}, err
		}
		return *c.response, nil
	})
}

// answer carries out one verb and records it.
func (r *taskRun) answer(c *command) VerbResponse {
	q, now := c.request, workflow.Now(r.ctx)
	ask := plan.Command{Verb: c.verb, Actor: q.Actor, Via: q.Via, Reason: q.Reason, Key: q.Key}
	outcome, text := audit.Refused, ""
	switch {
	case c.unknown:
		text = fmt.Sprintf("there is no signal %q: send pause, resume or stop", c.verb)
		r.machine.Refuse(ask, text, now)
	case c.malformed != "":
		text = "the payload cannot be read: " + c.malformed + `; send it empty, or as {"actor":"…","reason":"…"}`
		r.machine.Refuse(ask, text, now)
	default:
		outcome, text = r.carryOut(ask)
	}
	r.show()
	return *responseOf(outcome, text, string(r.task.State), r.machine.Audit())
}

// carryOut hands a verb to the machine. A task that is interrupted goes on only if no newer one has taken its place.
func (r *taskRun) carryOut(ask plan.Command) (audit.Outcome, string) {
	repeated := r.machine.Audit().Knows(ask.Key)
	if ask.Verb == plan.VerbResume && r.machine.State == plan.TaskInterrupted && !repeated {
		ask.Prevented = r.prevented()
	}
	held := r.machine.InterruptedItems()
	outcome, text := r.machine.Command(ask, workflow.Now(r.ctx))
	if outcome == audit.Accepted && ask.Verb == plan.VerbResume && !repeated {
		for _, n := range held {
			r.tell(n, SignalItemResume)
		}
	}
	return outcome, text
}

// prevented is why an interrupted task cannot go on now; "" when it can.
func (r *taskRun) prevented() string {
	newer, why := r.superseded()
	if newer != "" {
		return fmt.Sprintf("task %s has taken this task's place: stop this one", newer)
	}
	return why
}

// superseded asks whether a newer task of the plan runs; why says that this cannot be known now.
func (r *taskRun) superseded() (newer, why string) {
	var result workloadops.BeginTaskResult
	again := r.request()
	again.Reclaim = true
	err := workflow.ExecuteActivity(withActivity(r.ctx, centreBriefly, "check that no newer task runs"), workloadops.ActivityBeginTask, again).Get(r.ctx, &result)
	if err != nil {
		return "", "the engine's home cluster cannot be asked whether a newer task runs (" + message(err) + "): send resume again when it answers"
	}
	return result.Superseded, ""
}

// tell signals a running item. A child that has closed meanwhile needs no signal: its end is on the way.
func (r *taskRun) tell(n int, signal string) {
	if child := r.children[n]; child != nil {
		child.SignalChildWorkflow(r.ctx, signal, VerbRequest{Via: "task"})
	}
}
