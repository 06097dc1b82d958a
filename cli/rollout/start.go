package rollout

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/manifest"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/strictyaml"
)

func startCommand(a *app.App) *cobra.Command {
	var request startRequest
	var body requestBody
	var who app.Who
	var options follow.Options
	command := &cobra.Command{
		Use:   "start",
		Short: "Start a canary or blue-green release of a workload",
		Long: `Start a canary or blue-green release of a workload. -f takes the request as the HTTP API does, or a whole Rollout
document (rollouts.kruise.io/v1beta1 or v1alpha1); flags complete it, or say everything. Everything is checked first, in the
document and in the workload's cluster; what cannot be done is refused with every reason, and nothing is changed.

With --watch the rollout is followed to its end, and the exit code says how it ended:

` + exitCodes + `

--key makes a repeat safe: for 30 days the same key is the same rollout.`,
		Example: `  slipway rollout start -f canary.yaml --image app=registry/shop/web:2.4 --reason "release 2.4" --watch
  slipway rollout start -n shop --workload deployment/web --image app=registry/shop/web:2.4 --strategy-file strategy.yaml`,
		Args: cobra.NoArgs,
	}
	check := func([]string) (err error) {
		if err := options.Check(command); err != nil {
			return err
		}
		body, err = request.read(a, who)
		return err
	}
	a.Writing(command, check, func(c *cobra.Command, api *client.Client, _ []string) error {
		who.Complete()
		started, err := startOne(c.Context(), a, api, body, who.Key)
		if err != nil {
			return err
		}
		return begun(c.Context(), a, api, started, "rollout "+startedName(started.Value).String()+" has begun", options)
	})
	request.flags(command)
	who.Flags(command, "any `text` that is unique to this release, such as a pipeline's number")
	options.StartFlags(command, words)
	return command
}

// begun says that a release has begun, or follows it to its end.
func begun(ctx context.Context, a *app.App, api *client.Client, started apiclient.Reply[client.RolloutStarted], what string,
	options follow.Options) error {
	name := startedName(started.Value)
	for _, w := range started.Value.Warnings {
		a.Printf(a.Err, "warning: %s\n", render.OneLine(w))
	}
	if options.Watch {
		if a.Output == app.Table {
			a.Printf(a.Err, "rollout %s\n", name)
		}
		return watchOne(ctx, a, api, name, options)
	}
	if done, err := a.PrintObject(started.Raw); done || err != nil {
		return err
	}
	a.Printf(a.Out, "%s\n", what)
	a.Printf(a.Err, "Follow it with: slipway rollout watch %s\n", name.Arguments())
	return nil
}

func startedName(r client.RolloutStarted) app.Name {
	return app.Name{Party: r.Party, Namespace: r.Namespace, Name: r.Name}
}

// startOne starts it. When nobody can say whether it was started, the error says how to ask again without starting another.
func startOne(ctx context.Context, a *app.App, api *client.Client, body requestBody,
	key string) (apiclient.Reply[client.RolloutStarted], error) {
	started, err := apiclient.Read[client.RolloutStarted](api.StartRolloutWithBody(ctx,
		&client.StartRolloutParams{IdempotencyKey: &key}, apiclient.JSONBody, bytes.NewReader(body.text)))
	var problem *apiclient.ProblemError
	if errors.As(err, &problem) {
		problem.Findings = body.located(problem.Errors)
	}
	if apiclient.OutcomeUnknown(err) {
		a.Printf(a.Err, "Whether the rollout was started is not known. The same command with --key %s starts it once.\n", key)
	}
	return started, err
}

func validateCommand(a *app.App) *cobra.Command {
	var request startRequest
	var body requestBody
	command := &cobra.Command{
		Use:   "validate",
		Short: "Check a rollout: its steps, and everything that is wrong with it",
		Long: `Check a rollout as its start would, in the document and in the workload's cluster, and show its steps. It takes what "slipway
rollout start" takes. Nothing is stored and no cluster is changed. The exit code is 1 when there are errors; warnings are none.`,
		Example: `  slipway rollout validate -f canary.yaml --image app=registry/shop/web:2.4`,
		Args:    cobra.NoArgs,
	}
	check := func([]string) (err error) {
		body, err = request.read(a, app.Who{})
		return err
	}
	a.Reading(command, check, func(c *cobra.Command, api *client.Client, _ []string) error {
		return validate(c.Context(), a, api, body)
	})
	request.flags(command)
	return command
}

func validate(ctx context.Context, a *app.App, api *client.Client, body requestBody) error {
	answer, err := apiclient.Read[client.RolloutValidateResult](api.ValidateRolloutWithBody(ctx, apiclient.JSONBody,
		bytes.NewReader(body.text)))
	if err != nil {
		return err
	}
	found := answer.Value
	findings := body.located(found.Errors)
	if done, err := a.PrintObject(found); err != nil {
		return err
	} else if !done {
		printValidation(a, findings, found)
	}
	if !found.Valid {
		return &app.ExitError{Code: app.ExitFailure}
	}
	return nil
}

func printValidation(a *app.App, findings []apiclient.Finding, found client.RolloutValidateResult) {
	for _, w := range found.Warnings {
		a.Printf(a.Err, "warning: %s\n", render.OneLine(w))
	}
	a.Printf(a.Err, "%s", apiclient.FindingLines("error: ", findings, 0))
	what := "the rollout"
	if s := found.Rollout; s != nil {
		what = "rollout " + keyOf(*s)
		a.Printf(a.Out, "%s\n", titleOf(*s))
		a.Draw(a.Drawing().Render(stepLines(a.Drawing(), asAsked(*s), len(s.Steps)), render.Unbounded))
	}
	if found.Valid {
		a.Printf(a.Out, "%s can be started\n", what)
		return
	}
	a.Printf(a.Out, "%s cannot be started, %s\n", what, render.Count(len(found.Errors), "error"))
}

// asAsked is a rollout that has not begun: its steps say what is asked, not how far they are.
func asAsked(s rollout.Status) rollout.Status {
	s.CurrentStepIndex, s.Steps = 0, slices.Clone(s.Steps)
	for n := range s.Steps {
		s.Steps[n].State, s.Steps[n].StartedAt, s.Steps[n].FinishedAt = "", nil, nil
	}
	return s
}

// startRequest is what `rollout start` and `rollout validate` ask for: a file, flags, or flags that complete a file.
type startRequest struct {
	app.Place
	file, name, workload    string
	images                  []string
	patchFile, strategyFile string
	policyFile, rolloutID   string
	supersede               bool
}

func (r *startRequest) flags(command *cobra.Command) {
	r.Flags(command)
	f := command.Flags()
	f.StringVarP(&r.file, "file", "f", "", "`file` with the request, or with a whole Rollout document; - for the standard input")
	f.StringVar(&r.workload, "workload", "", "what to release: `KIND/NAME`, such as deployment/web")
	f.StringVar(&r.name, "name", "", "`name` of the rollout (default: the workload's)")
	f.StringArrayVar(&r.images, "image", nil, "`CONTAINER=IMAGE` of the new version; may be repeated")
	f.StringVar(&r.patchFile, "patch-file", "", "`file` with a patch of the pod template, in place of --image")
	f.StringVar(&r.strategyFile, "strategy-file", "", "`file` with the strategy alone")
	f.StringVar(&r.policyFile, "policy-file", "", "`file` with the policy alone")
	f.StringVar(&r.rolloutID, "rollout-id", "", "your own `number` of this release; it is kept and shown")
	f.BoolVar(&r.supersede, "supersede", false, "take the place of a rollout of this workload that is under way: it goes back to stable first")
	for _, name := range []string{"file", "patch-file", "strategy-file", "policy-file"} {
		_ = command.MarkFlagFilename(name, "yaml", "yml", "json")
	}
	_ = command.RegisterFlagCompletionFunc("workload", cobra.NoFileCompletions)
}

// requestBody is a request as it is sent, and where it came from.
type requestBody struct {
	// text is the body, as JSON.
	text []byte
	// sources are the documents that the body was made of, those of single fields first.
	sources []source
}

// source is a document of a file, and where in the body it went.
type source struct {
	file string
	text []byte
	// below is the field that the document was put under, "" when it is the body itself.
	below string
}

// holds says whether a field of the body came from this document, and how the field is called there.
func (s source) holds(field string) (own string, ok bool) {
	if s.below == "" || field == s.below {
		return strings.TrimPrefix(field, s.below), true
	}
	if own, ok = strings.CutPrefix(field, s.below+"."); ok {
		return own, true
	}
	rest, ok := strings.CutPrefix(field, s.below+"[")
	return "[" + rest, ok
}

// read makes the body of the file and the flags; who acts goes into it as well.
func (r *startRequest) read(a *app.App, who app.Who) (requestBody, error) {
	body, fields, err := r.readBase(a)
	if err != nil {
		return body, err
	}
	if body.sources, err = r.complete(a, fields, body.sources); err != nil {
		return body, err
	}
	if _, own := fields["actor"]; !own || who.Actor != "" {
		who.Complete()
		fields["actor"] = who.Actor
	}
	if who.Reason != "" {
		fields["reason"] = who.Reason
	}
	if body.text, err = json.Marshal(fields); err != nil {
		return body, fmt.Errorf("the request cannot be written as JSON: %w", err)
	}
	return body, nil
}

// located gives what is wrong with the body the files and the lines that it came from. The lines of the body itself say nothing to people.
func (b requestBody) located(problems []client.FieldProblem) []apiclient.Finding {
	findings := []apiclient.Finding{}
	for n := range problems {
		problems[n].Line = 0
		file := ""
		for _, s := range b.sources {
			own, ok := s.holds(problems[n].Field)
			if !ok {
				continue
			}
			file, problems[n].Field = s.file, own
			manifest.Locate(s.text, problems[n:n+1])
			break
		}
		findings = append(findings, apiclient.FindingsOf(file, problems[n:n+1])...)
	}
	return findings
}

// readBase reads the file, if there is one. A whole Rollout document goes under the field rollout.
func (r *startRequest) readBase(a *app.App) (requestBody, map[string]any, error) {
	if r.file == "" {
		if r.workload == "" {
			return requestBody{}, nil, app.Usagef("say what to release: -f FILE, or --workload KIND/NAME with --image and --strategy-file")
		}
		return requestBody{}, map[string]any{}, nil
	}
	text, shown, err := manifest.ReadFile(a, r.file)
	if err != nil {
		return requestBody{}, nil, err
	}
	parts := strictyaml.Split(text)
	if len(parts) != 1 {
		return requestBody{}, nil, fmt.Errorf("%s holds %s: a rollout is started from one at a time", shown, render.Count(len(parts), "document"))
	}
	own := source{file: shown, text: parts[0]}
	fields, err := manifest.ReadMapping(shown, parts[0])
	if err != nil {
		return requestBody{}, nil, err
	}
	if fields["kind"] == "Rollout" {
		own.below = "rollout"
		fields = map[string]any{"rollout": fields}
	}
	return requestBody{sources: []source{own}}, fields, nil
}

type flagValue struct {
	field, flag string
	value       any
}

// complete adds what the flags say. A flag may complete a file, and set images anew; what contradicts the file is refused.
func (r *startRequest) complete(a *app.App, fields map[string]any, sources []source) ([]source, error) {
	added := []flagValue{
		{"party", "party", r.Party}, {"namespace", "namespace", r.namespaceOf(fields)}, {"name", "name", r.name},
		{"rolloutId", "rollout-id", r.rolloutID},
	}
	if r.workload != "" {
		ref, err := app.ParseWorkload(r.workload)
		if err != nil {
			return nil, err
		}
		added = append(added, flagValue{"workloadRef", "workload",
			map[string]any{"apiVersion": ref.APIVersion, "kind": ref.Kind, "name": ref.Name}})
	}
	for _, part := range []struct{ field, flag, file string }{
		{"templatePatch", "patch-file", r.patchFile}, {"strategy", "strategy-file", r.strategyFile}, {"policy", "policy-file", r.policyFile},
	} {
		value, own, err := readFields(a, part.file)
		if err != nil {
			return nil, err
		}
		if value != nil {
			added = append(added, flagValue{part.field, part.flag, value})
			own.below = part.field
			sources = append([]source{own}, sources...)
		}
	}
	for _, one := range added {
		if one.value == "" {
			continue
		}
		if old, there := fields[one.field]; there && fmt.Sprint(old) != fmt.Sprint(one.value) {
			return nil, app.Usagef("the file has its own %s, and --%s is given: leave one of them out", one.field, one.flag)
		}
		fields[one.field] = one.value
	}
	if r.supersede {
		fields["supersede"] = true
	}
	return sources, r.addImages(fields)
}

// namespaceOf is the namespace that the flags say; without a file it is the default one.
func (r *startRequest) namespaceOf(fields map[string]any) string {
	if r.Namespace == "" && r.file == "" && fields["namespace"] == nil {
		return app.DefaultNamespace
	}
	return r.Namespace
}

// addImages sets images by container, over those of the file.
func (r *startRequest) addImages(fields map[string]any) error {
	images, _ := fields["images"].(map[string]any)
	if images == nil {
		images = map[string]any{}
	}
	for _, pair := range r.images {
		container, image, both := strings.Cut(pair, "=")
		if !both || container == "" || image == "" {
			return app.Usagef("--image %q is not CONTAINER=IMAGE", pair)
		}
		images[container] = image
	}
	if len(r.images) > 0 {
		fields["images"] = images
	}
	return nil
}

// readFields reads a file that holds one mapping; nil without a file.
func readFields(a *app.App, file string) (map[string]any, source, error) {
	if file == "" {
		return nil, source{}, nil
	}
	text, shown, err := manifest.ReadFile(a, file)
	if err != nil {
		return nil, source{}, err
	}
	fields, err := manifest.ReadMapping(shown, text)
	if err == nil && len(fields) == 0 {
		err = fmt.Errorf("%s is empty", shown)
	}
	return fields, source{file: shown, text: text}, err
}
