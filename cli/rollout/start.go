package rollout

import (
	"bytes"
	"cmp"
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
	"slipway.io/slipway/cli/noun"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/strictyaml"
)

func startCommand(n *rollouts) *cobra.Command {
	a := n.App
	var request startRequest
	var body requestBody
	var who app.ActorFlags
	var options follow.Options
	command := &cobra.Command{
		Use:   "start",
		Short: "Start a canary or blue-green release of a workload",
		Long: `Start a canary or blue-green release of a workload. -f accepts the request of the HTTP API, or a Rollout
object (rollouts.kruise.io/v1beta1 or v1alpha1). Flags complete the file or replace it. The engine first validates the
document and the workload; if anything is invalid, it reports all errors and changes nothing.

With --watch, the command watches the rollout until it ends, and the exit code is the outcome:

` + exitCodes + `

--key makes retries safe: for 30 days, requests with the same key are the same rollout.`,
		Example: `  slipway rollout start -f canary.yaml --image app=registry/shop/web:2.4 --reason "release 2.4" --watch
  slipway rollout start -n shop --workload deployment/web --image app=registry/shop/web:2.4 \
    --strategy-file strategy.yaml`,
		Args: cobra.NoArgs,
	}
	check := func([]string) (err error) {
		if err := options.Check(command); err != nil {
			return err
		}
		body, err = request.read(a, who)
		return err
	}
	a.InitCommand(command, a.ConnectToWrite, check, func(c *cobra.Command, api *client.Client, _ []string) error {
		who.SetDefaults()
		started, err := apiclient.Read[client.RolloutStarted](api.StartRolloutWithBody(c.Context(),
			&client.StartRolloutParams{IdempotencyKey: &who.Key}, apiclient.JSONBody, bytes.NewReader(body.text)))
		var problem *apiclient.ProblemError
		if errors.As(err, &problem) {
			problem.Findings = body.locateErrors(problem.Errors)
		}
		return starting{what: "rollout", key: who.Key, options: options}.report(c.Context(), n, api, started, err)
	})
	request.flags(command)
	who.Flags(command, "idempotency `key`, unique to this release, such as a CI pipeline ID")
	options.StartFlags(command, watchHelp)
	return command
}

// starting is a request that starts a release: what it starts, its idempotency key, and the message afterwards.
type starting struct {
	what, key, text string
	options         follow.Options
}

// report reports that the release has started, or watches it until it ends. If the response was lost, it prints how to
// retry without starting another one.
func (s starting) report(ctx context.Context, n *rollouts, api *client.Client,
	started apiclient.Reply[client.RolloutStarted], err error) error {
	if apiclient.OutcomeUnknown(err) {
		n.App.Printf(n.App.Err, "It is unknown whether the %s was started. It is safe to repeat the command with "+
			"--key %s.\n", s.what, s.key)
	}
	if err != nil {
		return err
	}
	r := started.Value
	n.Scope.Party = r.Party
	return n.ReportStarted(ctx, api, noun.Started{Name: r.Namespace + "/" + r.Name, Raw: started.Raw, Text: s.text,
		Warnings: r.Warnings}, s.options)
}

func undoCommand(n *rollouts) *cobra.Command {
	var who app.ActorFlags
	var options follow.Options
	var body client.RolloutUndoRequest
	command := &cobra.Command{
		Use:   "undo " + n.Argument,
		Short: "Go back to an earlier version after a release has ended",
		Long: `Go back to an earlier version after a release has ended. The undo uses the strategy of the last release, and
the pod template of the version before it or of --to-revision. "slipway rollout history" shows the revisions.
policy.rollbackWindow sets for how many versions back an undo skips the steps. While a release is running, use "slipway
rollout rollback".

With --watch, the command watches the release until it ends, and the exit code is the outcome:

` + exitCodes,
		Example: `  slipway rollout undo shop/web --reason "the error rate is up" --watch
  slipway rollout undo shop/web --to-revision 3`,
	}
	check := func() error {
		if command.Flags().Changed("to-revision") && body.ToRevision < 1 {
			return app.Usagef("--to-revision must be 1 or greater")
		}
		return options.Check(command)
	}
	n.InitCommand(command, n.App.ConnectToWrite, check, func(c *cobra.Command, api *client.Client, key string) error {
		who.SetDefaults()
		body.Actor, body.Reason, body.Key = who.Actor, who.Reason, who.Key
		name := n.Object(key)
		started, err := apiclient.Read[client.RolloutStarted](api.UndoRollout(c.Context(), name.Namespace, name.Name,
			&client.UndoRolloutParams{Party: name.PartyParam(), IdempotencyKey: &body.Key}, body))
		return starting{what: "undo", key: body.Key, text: fmt.Sprintf("undo of rollout %s started", name),
			options: options}.report(c.Context(), n, api, started, err)
	})
	who.Flags(command, "idempotency `key`, unique to this undo, such as a CI pipeline ID")
	command.Flags().IntVar(&body.ToRevision, "to-revision", 0,
		"`number` of the version in the history (default: the version before the last release)")
	options.StartFlags(command, watchHelp)
	return command
}

func validateCommand(a *app.App) *cobra.Command {
	var request startRequest
	var body requestBody
	command := &cobra.Command{
		Use:   "validate",
		Short: "Validate a rollout and show its steps",
		Long: `Validate a rollout and show its steps, with the same checks of the document and of the workload's cluster as
"slipway rollout start", and with the same flags. Nothing is stored and no cluster is changed. The exit code is 1 if
there are errors; warnings do not change it.`,
		Example: `  slipway rollout validate -f canary.yaml --image app=registry/shop/web:2.4`,
		Args:    cobra.NoArgs,
	}
	check := func([]string) (err error) {
		body, err = request.read(a, app.ActorFlags{})
		return err
	}
	a.InitCommand(command, app.Connect, check, func(c *cobra.Command, api *client.Client, _ []string) error {
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
	findings := body.locateErrors(found.Errors)
	err = a.Print(found, func() { printValidation(a, findings, found) })
	if err == nil && !found.Valid {
		err = &app.ExitError{Code: app.ExitFailure}
	}
	return err
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
		a.Draw(a.Drawing().Render(stepLines(a.Drawing(), withoutProgress(*s), len(s.Steps)), render.Unbounded))
	}
	if found.Valid {
		a.Printf(a.Out, "%s can be started\n", what)
		return
	}
	a.Printf(a.Out, "%s cannot be started: %s\n", what, phrase.Count(len(found.Errors), "error"))
}

// withoutProgress returns the rollout without its progress, to show only what the steps request.
func withoutProgress(s rollout.Status) rollout.Status {
	s.CurrentStepIndex, s.Steps = 0, slices.Clone(s.Steps)
	for n := range s.Steps {
		s.Steps[n].State, s.Steps[n].StartedAt, s.Steps[n].FinishedAt = "", nil, nil
	}
	return s
}

// startRequest is the input of `rollout start` and `rollout validate`: a file, flags, or both.
type startRequest struct {
	app.ScopeFlags
	file, name, workload    string
	images                  []string
	patchFile, strategyFile string
	policyFile, rolloutID   string
	supersede               bool
}

func (r *startRequest) flags(command *cobra.Command) {
	r.Flags(command)
	f := command.Flags()
	f.StringVarP(&r.file, "file", "f", "", "`file` with the request or a Rollout object; - for standard input")
	f.StringVar(&r.workload, "workload", "", "workload to release, as `KIND/NAME`, such as deployment/web")
	f.StringVar(&r.name, "name", "", "`name` of the rollout (default: the workload's name)")
	f.StringArrayVar(&r.images, "image", nil, "new image of a container, as `CONTAINER=IMAGE`; can be repeated")
	f.StringVar(&r.patchFile, "patch-file", "", "`file` with a patch of the pod template, instead of --image")
	f.StringVar(&r.strategyFile, "strategy-file", "", "`file` with only the strategy")
	f.StringVar(&r.policyFile, "policy-file", "", "`file` with only the policy")
	f.StringVar(&r.rolloutID, "rollout-id", "", "your own `ID` of this release; it is stored and shown")
	f.BoolVar(&r.supersede, "supersede", false, "replace a running rollout of this workload; it is rolled back first")
	for _, name := range []string{"file", "patch-file", "strategy-file", "policy-file"} {
		_ = command.MarkFlagFilename(name, "yaml", "yml", "json")
	}
	_ = command.RegisterFlagCompletionFunc("workload", cobra.NoFileCompletions)
}

// requestBody is the request to send, with the documents it was built from.
type requestBody struct {
	fields map[string]any
	// text is the body, as JSON.
	text []byte
	// sources are the documents of the body; those of single fields come first.
	sources []source
}

// source is a document of a file, with its position in the body.
type source struct {
	file string
	text []byte
	// underField is the field that contains the document; "" if it is the body itself.
	underField string
}

// pathIn reports whether a field of the body came from this document, and returns the field's path in the document.
func (s source) pathIn(field string) (own string, ok bool) {
	if s.underField == "" || field == s.underField {
		return strings.TrimPrefix(field, s.underField), true
	}
	if own, ok = strings.CutPrefix(field, s.underField+"."); ok {
		return own, true
	}
	rest, ok := strings.CutPrefix(field, s.underField+"[")
	return "[" + rest, ok
}

// read builds the body from the file, the flags and the actor. A Rollout object in the file becomes the field rollout.
func (r *startRequest) read(a *app.App, who app.ActorFlags) (requestBody, error) {
	body := requestBody{fields: map[string]any{}}
	switch {
	case r.file != "":
		fields, err := body.readFile(a, r.file, "")
		if err != nil {
			return body, err
		}
		if body.fields = fields; fields["kind"] == "Rollout" {
			body.sources[0].underField, body.fields = "rollout", map[string]any{"rollout": fields}
		}
	case r.workload == "":
		return body, app.Usagef("nothing to release: set -f FILE, or --workload KIND/NAME with --image and --strategy-file")
	case r.Namespace == "":
		r.Namespace = app.DefaultNamespace
	}
	if err := r.complete(a, &body); err != nil {
		return body, err
	}
	if _, own := body.fields["actor"]; !own || who.Actor != "" {
		who.SetDefaults()
		body.fields["actor"] = who.Actor
	}
	if who.Reason != "" {
		body.fields["reason"] = who.Reason
	}
	var err error
	if body.text, err = json.Marshal(body.fields); err != nil {
		return body, fmt.Errorf("cannot encode the request as JSON: %w", err)
	}
	return body, nil
}

// readFile reads a file that contains one mapping, for a field of the body or for the whole body.
func (b *requestBody) readFile(a *app.App, file, field string) (map[string]any, error) {
	text, shown, err := manifest.ReadFile(a, file)
	if err != nil {
		return nil, err
	}
	parts := strictyaml.Split(text)
	if len(parts) != 1 {
		return nil, fmt.Errorf("%s contains %s, but must contain exactly one", shown,
			phrase.Count(len(parts), "document"))
	}
	b.sources = append([]source{{shown, parts[0], field}}, b.sources...)
	fields, err := manifest.ReadMapping(shown, parts[0])
	if err == nil && len(fields) == 0 && field != "" {
		err = fmt.Errorf("%s is empty", shown)
	}
	return fields, err
}

// locateErrors sets the file and line of errors in the body. Line numbers of the generated body are dropped: the user
// has not seen it.
func (b *requestBody) locateErrors(problems []client.FieldProblem) []apiclient.Finding {
	findings := []apiclient.Finding{}
	for n := range problems {
		problems[n].Line = 0
		file := ""
		for _, s := range b.sources {
			own, ok := s.pathIn(problems[n].Field)
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

// set sets a field to the value of a flag. Flags may add to a file; contradictions are errors.
func (b *requestBody) set(field, flag string, value any) error {
	if value == "" {
		return nil
	}
	if old, there := b.fields[field]; there && fmt.Sprint(old) != fmt.Sprint(value) {
		return app.Usagef("%s is set both in the file and by --%s: use only one of them", field, flag)
	}
	b.fields[field] = value
	return nil
}

// complete adds the values of the flags.
func (r *startRequest) complete(a *app.App, body *requestBody) error {
	err := cmp.Or(body.set("party", "party", r.Party), body.set("namespace", "namespace", r.Namespace),
		body.set("name", "name", r.name), body.set("rolloutId", "rollout-id", r.rolloutID))
	if err == nil && r.workload != "" {
		ref, wrong := app.ParseWorkload(r.workload)
		err = cmp.Or(wrong, body.set("workloadRef", "workload",
			map[string]any{"apiVersion": ref.APIVersion, "kind": ref.Kind, "name": ref.Name}))
	}
	for _, part := range []struct{ field, flag, file string }{
		{"templatePatch", "patch-file", r.patchFile}, {"strategy", "strategy-file", r.strategyFile},
		{"policy", "policy-file", r.policyFile},
	} {
		if err == nil && part.file != "" {
			value, wrong := body.readFile(a, part.file, part.field)
			err = cmp.Or(wrong, body.set(part.field, part.flag, value))
		}
	}
	if err == nil && r.supersede {
		body.fields["supersede"] = true
	}
	if err == nil && len(r.images) > 0 {
		err = r.addImages(body.fields)
	}
	return err
}

// addImages sets images by container; they override those of the file.
func (r *startRequest) addImages(fields map[string]any) error {
	images, _ := fields["images"].(map[string]any)
	if images == nil {
		images = map[string]any{}
		fields["images"] = images
	}
	for _, pair := range r.images {
		container, image, both := strings.Cut(pair, "=")
		if !both || container == "" || image == "" {
			return app.Usagef("--image %q is not CONTAINER=IMAGE", pair)
		}
		images[container] = image
	}
	return nil
}
