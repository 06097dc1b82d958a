package workflows

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workloadops"
)

// DefaultConcurrentWorkloads is how many workloads of one service a PARALLEL release has under way at once, unless it is told otherwise:
// the server fails the task of a workflow with more than 2,000 pending activities, for ever.
const DefaultConcurrentWorkloads = 100

// atOnce is how many workloads may be under way at once.
func (r *itemRun) atOnce() int {
	if r.in.Outline.Method == plan.Sequential {
		return 1
	}
	return cmp.Or(r.in.MaxConcurrentWorkloads, DefaultConcurrentWorkloads)
}

// walk releases the workloads, as many at once as may be. SEQUENTIAL takes them in the catalogue's order, but one that misses a pod before
// all others: no second pod of the service may be missing beside it. A workload that fails ends it there: what comes after is not touched.
// PARALLEL ends the others too, but begins none once a workload was given up.
//
// When the history is long it begins nothing more: once what is under way has ended, the item is continued as new.
func (r *itemRun) walk() (leaves bool) {
	for {
		pending := r.pending()
		if at := r.stops(); at >= 0 && len(pending) > 0 && r.busy == 0 {
			r.skip(pending, at)
			pending = nil
		}
		if len(pending) == 0 && r.busy == 0 {
			return false
		}
		long := historyIsLong(r.ctx)
		if long && r.busy == 0 {
			return true
		}
		if len(pending) > 0 && !long && r.busy < r.atOnce() && r.stops() < 0 {
			r.begin(pending)
			continue
		}
		busy := r.busy
		if err := workflow.Await(r.ctx, func() bool { return r.busy < busy }); err != nil {
			return false
		}
	}
}

// pending are the workloads that have not begun, in the catalogue's order.
func (r *itemRun) pending() []int {
	var pending []int
	for i, w := range r.works {
		if w.State == plan.ItemPending {
			pending = append(pending, i)
		}
	}
	return pending
}

// stops is the workload whose end keeps others from beginning; -1 when none does.
func (r *itemRun) stops() int {
	for i, w := range r.works {
		if w.State == plan.ItemFailed && (r.givenUp[i] || r.in.Outline.Method == plan.Sequential) {
			return i
		}
	}
	return -1
}

func (r *itemRun) skip(pending []int, failed int) {
	for _, i := range pending {
		r.works[i].State, r.works[i].Message = plan.ItemSkipped, "never begun: "+r.orders[failed].Request.Workload.String()+" failed before it"
	}
}

// begin takes the next workload.
func (r *itemRun) begin(pending []int) {
	i := pending[0]
	if r.in.Outline.Method == plan.Sequential {
		var err error
		if i, err = r.next(pending); err != nil {
			i = pending[0]
			r.givenUp[i] = true
			r.works[i].State, r.works[i].Message = plan.ItemFailed, r.orders[i].Request.Workload.String()+": "+err.Error()
			return
		}
	}
	w := &r.works[i]
	w.State, w.Message = plan.ItemRunning, "being released"
	r.busy++
	workflow.Go(r.ctx, func(ctx workflow.Context) {
		r.release(ctx, i)
		r.busy--
	})
}

// askAtOnce bounds one activity's payload, and its time.
const askAtOnce = 300

// next is the workload that is taken next; errAbandoned when the item was told to give up meanwhile. One question asks a party's worker for
// all of its workloads. What else keeps a party from answering is found out by the operation itself.
func (r *itemRun) next(pending []int) (int, error) {
	if len(pending) == 1 {
		return pending[0], nil
	}
	next := -1
	for _, q := range r.questions(pending) {
		unavailable, err := r.unavailable(q)
		if errors.Is(err, errAbandoned) {
			return 0, err
		}
		if err != nil {
			continue
		}
		for at, i := range q {
			if at < len(unavailable) && unavailable[at] > 0 && (next < 0 || i < next) {
				next = i
			}
		}
	}
	if next < 0 {
		next = pending[0]
	}
	return next, nil
}

// questions are the workloads by the queue that answers for them, in the catalogue's order.
func (r *itemRun) questions(pending []int) [][]int {
	var questions [][]int
	for _, i := range pending {
		at := slices.IndexFunc(questions, func(q []int) bool { return r.orders[q[0]].Queue == r.orders[i].Queue && len(q) < askAtOnce })
		if at < 0 {
			at, questions = len(questions), append(questions, nil)
		}
		questions[at] = append(questions[at], i)
	}
	return questions
}

// unavailable is how many pods of each workload are asked for and not ready.
func (r *itemRun) unavailable(workloads []int) ([]int32, error) {
	request := workloadops.UnavailableRequest{Workloads: make([]catalog.Workload, len(workloads))}
	for at, i := range workloads {
		request.Workloads[at] = r.orders[i].Request.Workload
	}
	first := r.orders[workloads[0]]
	var answer workloadops.UnavailableResult
	err := r.persist(r.ctx, partyName(first.Request), func(int64) error {
		what := fmt.Sprintf("does one of %d workloads miss a pod?", len(workloads))
		return perform(withActivity(r.ctx, partyLook(first.Queue, r.budget), what), workloadops.ActivityCountUnavailable, request, &answer)
	})
	return answer.Unavailable, err
}
