package rollouts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/v1alpha1"
)

// StartRollout answers POST /api/v1/rollouts.
//
// A name has one live release, whatever crashes where: the release's record is written first, then its workflow is started under the name's ID,
// which Temporal gives to one only. Each step can be repeated, and a repeat with the same key goes on where the one before it was lost.
func (h *Handlers) StartRollout(c echo.Context, params schema.StartRolloutParams) error {
	request, err := readRolloutRequest(c)
	if err != nil {
		return err
	}
	via, err := input.FrontDoor(params.SlipwayVia)
	if err != nil {
		return err
	}
	if request.Key, err = input.Key(request.Key, params.IdempotencyKey); err != nil {
		return err
	}
	// Somebody who hangs up must not leave a start half done.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request().Context()), start.Timeout)
	defer cancel()
	s := &rolloutStart{Handlers: h, request: request, via: via}
	status, err := s.run(ctx)
	if err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderLocation, s.key.path())
	return c.JSON(http.StatusAccepted, schema.RolloutStarted{Status: status, Warnings: s.request.Warnings})
}

// readRolloutRequest reads the body of a start strictly: every error at once.
func readRolloutRequest(c echo.Context) (rollout.Request, error) {
	body, isJSON, err := input.Document(c)
	if err != nil {
		return rollout.Request{}, err
	}
	request, wrong := decodeRollout(body, isJSON)
	if len(wrong) > 0 {
		return request, problem.WrongDocument("the rollout", wrong)
	}
	return request, nil
}

func decodeRollout(body []byte, isJSON bool) (rollout.Request, strictyaml.Errors) {
	request, wrong := rollout.DecodeRequest(body)
	if len(wrong) == 0 {
		wrong = input.NotJSON(body, isJSON)
	}
	return request, wrong
}

// rolloutStart is one request to start a rollout.
type rolloutStart struct {
	*Handlers
	request rollout.Request
	via     string
	key     rolloutKey
	// bringHome says that nothing is released: what a frozen rollout left is brought back to stable.
	bringHome bool

	queue  string
	shared *rollout.SharedTraffic
	// Record is the release's, once it is written; recordID is its ID before.
	record   *v1alpha1.ReleaseRecord
	recordID string
	// pruned is what is left of the release that the request's key stands for, when its record is not kept any more.
	pruned *v1alpha1.ReleaseRecord
	// adopted says that an earlier request with the same key wrote the record. checked says that the parties were asked.
	adopted, checked bool
	// replacing says that a live release of this name is superseded.
	replacing bool
}

// errAgain says that the name was taken or given free underneath: look at it anew.
var errAgain = problem.Conflict.Because("other releases of this name keep beginning and ending: repeat the request")

func (s *rolloutStart) run(ctx context.Context) (rollout.Status, error) {
	if err := s.place(ctx); err != nil {
		return rollout.Status{}, err
	}
	for range backend.Attempts {
		err := s.attempt(ctx)
		if errors.Is(err, errAgain) {
			continue
		}
		if err != nil {
			return rollout.Status{}, err
		}
		return s.now(ctx)
	}
	return rollout.Status{}, errAgain
}

// place finds out where the workload is: its party's queue and its namespace.
func (s *rolloutStart) place(ctx context.Context) error {
	spec := &s.request.Spec
	party := spec.Workload().PartyOrDefault()
	queue, known, err := s.Home.Queue(ctx, party)
	if err != nil {
		return err
	}
	if !known {
		return s.refused(schema.FieldProblem{Field: "party", Reason: "party " + party +
			" is not known: create a Party object of that name in the engine's namespace, or a namespace of that name in the home cluster"})
	}
	if spec.Namespace == "" {
		if spec.Namespace, err = s.Home.DefaultNamespace(ctx, party); err != nil {
			return err
		}
	}
	if spec.Namespace == "" {
		return problem.WrongDocument("the rollout", strictyaml.Errors{{Field: "namespace", Reason: "is missing: party " + party + " has no namespace of its own"}})
	}
	spec.Party, s.queue, s.key = party, queue, rolloutKeyOf(*spec)
	s.key.party, s.key.namespace = party, spec.Namespace
	return nil
}

// attempt goes through the whole protocol once: look, check, record, start.
func (s *rolloutStart) attempt(ctx context.Context) error {
	if s.request.Key != "" && s.record == nil {
		if done, err := s.lookUpKey(ctx); done || err != nil {
			return err
		}
	}
	if err := s.lookAtLive(ctx); err != nil {
		if !errors.Is(err, errAgain) {
			s.withdraw(ctx)
		}
		return err
	}
	if !s.checked && !s.bringHome {
		if err := s.check(ctx); err != nil {
			s.withdraw(ctx)
			return err
		}
		s.checked = true
	}
	if s.record == nil {
		if err := s.writeRecord(ctx); err != nil {
			return err
		}
	}
	if s.replacing {
		return s.supersede(ctx)
	}
	return s.start(ctx)
}

// lookAtLive looks whether a release of that name runs, by the workflow's ID: lists lag behind.
func (s *rolloutStart) lookAtLive(ctx context.Context) error {
	s.replacing = false
	described, err := s.Describe(ctx, s.key.workflowID())
	if err != nil {
		return err
	}
	if described == nil || !backend.IsOpen(described) {
		return nil
	}
	if s.request.Key != "" && s.runs(ctx, described, s.recordName(time.Now())) {
		s.record, s.adopted = nil, false // a twin of this request has started it: the key stands for it now
		return errAgain
	}
	if publishedPhase(described.GetWorkflowExecutionInfo()).Final() && s.ClosesSoon(ctx, s.key.workflowID()) {
		return nil
	}
	if s.request.Supersede {
		s.replacing = true
		return nil
	}
	return s.taken(ctx)
}

// taken is the answer while another release of that name runs.
func (s *rolloutStart) taken(ctx context.Context) error {
	problem := problem.Conflict.Because("%s is being released already: wait until it is over, stop it (POST %s), or take its place with supersede: true",
		s.key, s.key.verb("stop")).HeldBy(s.key.workflowID())
	if seen, err := s.readRollout(ctx, s.key); err == nil {
		problem = problem.Showing(seen.status)
	}
	return problem
}

func (s *rolloutStart) refused(problems ...schema.FieldProblem) error {
	return problem.Refused.Because("the rollout cannot be carried out, and nothing was changed: %s", problem.Summary(problems)).Listing(problems)
}

// withdraw takes back the record of a release that was not started. One that stays behind, because the home cluster is away now, reads as a
// release that was never started.
func (s *rolloutStart) withdraw(ctx context.Context) {
	if s.record == nil || s.adopted { // what an earlier request wrote is that request's to take back
		s.record, s.adopted = nil, false
		return
	}
	if err := s.Home.DeleteRelease(ctx, s.record.Name); err != nil && !problem.IsFailure(err, failure.NotFound) {
		s.Log.Warn("the record of a rollout that was not started stays behind", "record", s.record.Name, "error", err)
	}
	s.record, s.adopted = nil, false
	if s.request.Key == "" {
		s.recordID = ""
	}
}

// requestDigest tells two requests under one key apart; the spelling of the body means nothing.
func (s *rolloutStart) requestDigest() string {
	canonical, err := json.Marshal(struct {
		Spec          rollout.Spec `json:"spec"`
		Supersede     bool         `json:"supersede"`
		BringHome     bool         `json:"bringHome"`
		Actor, Reason string
	}{s.request.Spec, s.request.Supersede, s.bringHome, s.request.Actor, s.request.Reason})
	if err != nil {
		return "" // it came from JSON or YAML and always encodes
	}
	digest := sha256.Sum256(canonical)
	return hex.EncodeToString(digest[:])
}

// recordName is the name of the release's record; without a key each attempt has a new one.
func (s *rolloutStart) recordName(now time.Time) string {
	if s.recordID == "" {
		s.recordID = s.key.newRecordID(now)
	}
	return v1alpha1.RecordName(v1alpha1.KindRollout, s.recordID)
}
