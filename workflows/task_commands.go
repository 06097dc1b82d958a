package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workloadops"
)

// answered is what became of a command, remembered by its key.
type answered struct {
	verb     plan.Verb
	response VerbResponse
}

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
	key := c.request.Key
	earlier, known := r.answered[key]
	if known && key != "" && earlier.verb == c.verb {
		return earlier.response
	}
	var outcome plan.Outcome
	var text string
	if known && key != "" {
		outcome, text = plan.OutcomeRefused, fmt.Sprintf("the key %q was used for %s: take another", key, earlier.verb)
	} else {
		outcome, text = r.carryOut(c)
	}
	r.record(c, outcome, text)
	r.show()
	response := VerbResponse{Outcome: outcome, Message: text, State: r.task.State}
	if key != "" && !known {
		r.answered[key] = answered{verb: c.verb, response: response}
	}
	return response
}

func (r *taskRun) carryOut(c *command) (plan.Outcome, string) {
	if c.unknown {
		return plan.OutcomeRefused, fmt.Sprintf("there is no signal %q: send pause, resume or stop", c.verb)
	}
	if c.malformed != "" {
		return plan.OutcomeRefused, "the payload cannot be read: " + c.malformed + `; send it empty, or as {"actor":"…","reason":"…"}`
	}
	held := r.machine.InterruptedItems()
	if c.verb == plan.VerbResume && r.machine.State == plan.TaskInterrupted {
		if newer, why := r.superseded(); why != "" {
			return plan.OutcomeRefused, why
		} else if newer != "" {
			return plan.OutcomeRefused, fmt.Sprintf("task %s has taken this task's place: stop this one", newer)
		}
		held = r.machine.InterruptedItems()
	}
	outcome, text := r.machine.Command(c.verb)
	if outcome == plan.OutcomeAccepted && c.verb == plan.VerbResume {
		for _, n := range held {
			r.tell(n, SignalItemResume)
		}
	}
	return outcome, text
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

// maxHistory bounds the decisions that a task keeps; a run takes 2,000 updates at most.
const maxHistory = 100

func (r *taskRun) record(c *command, outcome plan.Outcome, text string) {
	d := plan.Decision{At: workflow.Now(r.ctx), Actor: c.request.Actor, Via: c.request.Via, Verb: c.verb, Reason: c.request.Reason,
		Key: c.request.Key, Outcome: outcome, Message: text}
	if d.Actor == "" {
		d.Actor = "unknown"
	}
	if d.Via == "" {
		d.Via = "temporal"
	}
	r.task.History = append(r.task.History, d)
	if over := len(r.task.History) - maxHistory; over > 0 {
		r.task.History = r.task.History[over:]
	}
}

// tell signals a running item. A child that has closed meanwhile needs no signal: its end is on the way.
func (r *taskRun) tell(n int, signal string) {
	if child := r.children[n]; child != nil {
		child.SignalChildWorkflow(r.ctx, signal, VerbRequest{Via: "task"})
	}
}
