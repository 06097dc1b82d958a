// Package serving implements `slipway serving`. A serving runs on the clusters of several parties.
package serving

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/api/kuscia/convert"
	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/appimage"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/manifest"
	"slipway.io/slipway/cli/noun"
	"slipway.io/slipway/cli/render"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

type servings = noun.Noun[serving.View, serving.View]

// Command returns `slipway serving`.
func Command(a *app.App) *cobra.Command {
	n := newNoun(a)
	get := n.GetCommand("Show a serving: its state, parties and endpoints",
		`Show a serving: its state, its parties with their replicas and endpoints, and why it is not serving.

-o json and -o yaml also print its spec: the input configuration and the requested parties.`)
	get.Example = `  slipway serving get serving-01
  slipway serving get serving-01 -o json | jq -r .phase`
	remove := n.DeleteCommand(
		`Delete servings. The command returns immediately; the resources of the parties are removed afterwards (for an
unreachable party, when it is reachable again). Until then, "slipway serving watch ID" shows what remains, and the ID
cannot be reused.`)
	command := &cobra.Command{
		Use: n.Command, Aliases: []string{"servings"}, Short: "Manage servings, which run on several parties' clusters",
		Long: `Manage servings, which run on the clusters of several parties. A serving is created from a KusciaDeployment,
or from Kuscia's request. The engine updates all parties; an update that fails for one party is rolled back
for all.`,
	}
	for _, mode := range modes {
		command.AddCommand(filesCommand(n, mode))
	}
	command.AddCommand(get, remove, n.ListCommand("List the servings, with their state", nil), watchCommand(n),
		historyCommand(n))
	for _, v := range verbs(a) {
		command.AddCommand(n.VerbCommand(v, stateText))
	}
	return command
}

var calls = noun.Calls{List: apiclient.List((*client.Client).ListServings),
	Get:     apiclient.Named((*client.Client).GetServing),
	Delete:  apiclient.Named((*client.Client).DeleteServing),
	History: apiclient.NamedWith((*client.Client).GetServingHistory),
	Watch:   apiclient.NamedWith((*client.Client).WatchServing),
	Verbs: map[string]apiclient.Call{
		string(serving.VerbApprove): apiclient.NamedBodyWith((*client.Client).ApproveServingWithBody),
		string(serving.VerbPause):   apiclient.NamedBodyWith((*client.Client).PauseServingWithBody),
		string(serving.VerbResume):  apiclient.NamedBodyWith((*client.Client).ResumeServingWithBody),
		string(serving.VerbStop):    apiclient.NamedBodyWith((*client.Client).StopServingWithBody)}}

func newNoun(a *app.App) *servings {
	return &servings{
		App: a, Command: "serving", Name: "serving", Argument: "ID", Calls: calls, Example: "serving-01",
		Key:    func(s serving.View) string { return s.ID },
		Note:   func(s serving.View) string { return string(s.Phase) },
		Titles: []string{"ID", "STATE", "PARTIES", "OPERATION", "WAITS FOR", "SINCE", "AGE", "REASON"},
		Row: func(s serving.View) []string {
			wait, since := "", ""
			if w := waitOf(s); w != nil {
				wait, since = waitText(w), a.Age(w.Since.Time)
			}
			return []string{s.ID, state(s), fmt.Sprintf("%d/%d", s.AvailableParties, s.TotalParties), operationText(s),
				wait, since, a.Age(s.CreatedAt), render.ReasonAndMessage(s.Reason, s.Message)}
		},
		Empty: "There are no servings. Create one with `slipway serving create -f FILE`.",
		Describe: func(_ string, v serving.View) error {
			a.Draw(drawAll(a.Drawing(), v))
			return nil
		},
		// A serving never ends: it may be changed at any time.
		Release: noun.Release[serving.View]{Flags: watchHelp, ExitCodes: exitCodes, ExitCode: exitCodeOf,
			Ended:    func(serving.View) bool { return false },
			Renderer: follow.Renderer[serving.View]{Fit: Fit, Changes: changes, Summary: summary}},
	}
}

func historyCommand(n *servings) *cobra.Command {
	titles := []string{"STARTED", "OPERATION", "GENERATION", "STATE", "TOOK", "VERSION", "MESSAGE"}
	command := noun.HistoryCommand(n, "operations", nil, titles, func(r serving.Release) []string {
		return []string{render.Clock(r.StartedAt, n.App.Now()), r.Kind, fmt.Sprint(r.Generation), string(r.State),
			n.App.Elapsed(&r.StartedAt, r.FinishedAt), r.Version, render.Cell(r.Message)}
	})
	command.Short = "List the operations on a serving, newest first"
	command.Long = `List the current and past operations on a serving, newest first, even after the serving was deleted.
With -o json or yaml, each operation is printed completely, with the requested state of every party and the history of
decisions.`
	command.Example = `  slipway serving history serving-01 --limit 5`
	return command
}

// verbs returns the verbs in the order of the help.
func verbs(a *app.App) []noun.Verb[serving.View] {
	return []noun.Verb[serving.View]{
		{Name: string(serving.VerbApprove), Short: "Approve the next party of an update",
			Long: "Approve the party that waits for approval, if the serving's policy has approval: betweenParties. The " +
				"command shows the party and asks for confirmation. Without a terminal, use --party, --gate or --yes. " +
				"If the update has moved on in the meantime, the engine rejects the approval.",
			ExampleReason: "alice's numbers are good",
			Flags: func(command *cobra.Command, body *noun.VerbBody) {
				command.Flags().StringVar(&body.Party, "party", "", "the `party` that is meant; if another party waits, "+
					"the command is rejected (default: the waiting party)")
				body.ConfirmFlags(command, "party", "waiting party")
			},
			Confirm: func(v serving.View, body *noun.VerbBody) error { return confirm(a, v, body) }},
		{Name: string(serving.VerbPause), Short: "Pause the operation on a serving",
			Long: "Pause the operation on a serving. Parties already started continue; no other party starts until it is " +
				"resumed.",
			ExampleReason: "wait for the database team"},
		{Name: string(serving.VerbResume), Short: "Resume a paused operation", Long: "Resume a paused operation.",
			ExampleReason: "the database is ready"},
		{Name: string(serving.VerbStop), Short: "Roll an update back in all parties",
			Long: "Roll an update back: all parties return to the previous version, because an update is all or nothing. " +
				"A creation cannot be stopped: delete the serving instead.",
			ExampleReason: "alice's numbers are bad"},
	}
}

// noGate is the gate of an approval that was sent while no party was waiting. It never matches, so the approval cannot
// apply to a party that starts waiting in the meantime.
const noGate = "nobody-waited"

// confirm shows the party, asks for confirmation and sends the gate of this party. If the user named the party, it does
// not ask; if another party waits, it sends only the party, and the engine rejects it.
func confirm(a *app.App, v serving.View, body *noun.VerbBody) error {
	w := waitOf(v)
	if w == nil || w.Kind != serving.WaitApproval {
		if body.Party == "" {
			body.Gate = noGate // the engine's error explains why there is nothing to approve
		}
		return nil
	}
	a.Printf(a.Err, "approve serving %s, waiting for %s since %s\n", v.ID, waitText(w),
		render.Clock(w.Since.Time, a.Now()))
	for _, line := range a.Drawing().Render(partyLines(v.Parties), render.Unbounded) {
		a.Printf(a.Err, "%s\n", line)
	}
	if body.Party != "" && body.Party != w.Party {
		return nil
	}
	body.Gate = w.Gate
	if body.Party != "" || body.Yes {
		return nil
	}
	return a.RequireConfirmation(fmt.Sprintf("Approve %s?", render.OneLine(w.Party)),
		fmt.Sprintf("--party %s, --gate or --yes", render.OneLine(w.Party)))
}

// waitOf returns what the serving's operation waits for from a user; nil if it is not waiting.
func waitOf(v serving.View) *kuscia.WaitingFor {
	if v.Operation == nil {
		return nil
	}
	return v.Operation.WaitingFor
}

// waitText returns, for example, "approval of bob".
func waitText(w *kuscia.WaitingFor) string {
	switch w.Kind {
	case serving.WaitApproval:
		return render.OneLine("approval of " + w.Party)
	case serving.WaitResume:
		return "resume"
	}
	return render.OneLine(w.Kind)
}

const filesHelp = ` A file contains a KusciaDeployment, or Kuscia's request (%s) as JSON or YAML.
Separate several documents by "---". Labels and annotations other than Kuscia's cannot be set and are rejected, like
unknown fields, with their path; kubectl apply accepts them.

AppImages in the files are registered first.

%s

`

type mode struct {
	name, short, example string
	// request is the name of Kuscia's request; helpEnd is the last paragraph of the help.
	request, helpEnd string
	// creates makes it refuse existing servings, updates missing ones.
	creates, updates bool
}

var modes = []mode{
	{name: "apply", short: "Create or update servings", request: "CreateServingRequest",
		helpEnd: `A serving that does not exist is created; an existing one is updated if the file differs. Parties cannot be
added or removed. With --watch, the command watches the serving, and the exit code is the outcome:`,
		example: `  slipway serving apply -f secretflow-serving.yaml --watch`},
	{name: "create", short: "Create servings", request: "CreateServingRequest", creates: true,
		helpEnd: "The command returns when the serving has been created. With --watch, it waits until the serving is " +
			"Available or Failed, and the exit code is the outcome:",
		example: `  slipway serving create -f serving.json --watch
  slipway serving create -f secretflow-serving.yaml`},
	{name: "update", short: "Update servings: input configuration, images, replicas, strategies, resources",
		request: "UpdateServingRequest", updates: true,
		helpEnd: `A request changes only its fields, of its parties; a KusciaDeployment is the whole serving. An update is all
or nothing: if it fails for one party, all parties return to the previous version. With --watch, the command watches
it, and the exit code is the outcome:`,
		example: `  slipway serving update -f serving.json --watch
  echo '{"serving_id":"serving-01","parties":[{"domain_id":"alice","replicas":3}]}' | slipway serving update -f -`},
}

func filesCommand(n *servings, m mode) *cobra.Command {
	a := n.App
	var options follow.Options
	var files []string
	var documents []manifest.Document
	command := &cobra.Command{Use: m.name + " -f FILE", Short: m.short, Example: m.example, Args: cobra.NoArgs}
	command.Long = m.short + "." + fmt.Sprintf(filesHelp, m.request, m.helpEnd) + exitCodes
	check := func([]string) (err error) {
		if err := options.Check(command); err != nil {
			return err
		}
		documents, err = manifest.KusciaReader{Kind: manifest.KindServing, Updates: m.updates}.Read(a, files)
		servings := 0
		for _, d := range documents {
			if d.Kind == manifest.KindServing {
				servings++
			}
		}
		if err == nil && options.Watch && servings > 1 {
			return app.Usagef("--watch supports one serving, but the files contain %d: use slipway serving watch "+
				"instead", servings)
		}
		return err
	}
	a.InitCommand(command, a.ConnectToWrite, check, func(c *cobra.Command, api *client.Client, _ []string) error {
		put := func(ctx context.Context, api *client.Client, d manifest.Document) (manifest.Result, error) {
			return m.put(ctx, n, api, d)
		}
		what := manifest.Applier{Noun: "serving", Put: put, InOrder: true, Watched: options.Watch}
		if err := what.Send(c.Context(), a, api, documents); err != nil {
			return err
		}
		last := documents[len(documents)-1].Name
		if options.Watch {
			return watchOne(c.Context(), n, api, last, options)
		}
		if a.Output == app.Table {
			a.Printf(a.Err, "To watch it: slipway serving watch %s\n", last)
		}
		return nil
	})
	manifest.FileFlag(command, &files)
	options.StartFlags(command, watchHelp)
	return command
}

// put sends an AppImage or a whole serving, which it first makes from a request.
func (m mode) put(ctx context.Context, n *servings, api *client.Client, d manifest.Document) (result manifest.Result,
	err error) {
	if d.Kind == manifest.KindAppImage {
		return appimage.Put(ctx, api, d, m.creates)
	}
	params := &client.PutServingParams{}
	var current serving.View
	switch {
	case m.creates:
		params.Generation = &current.Generation
	case m.updates:
		answer, err := n.Read(ctx, api, d.Name)
		if err != nil {
			return result, err
		}
		current = answer.Value
		params.Generation = &current.Generation
	}
	var spec kuscia.KusciaDeploymentSpec
	var missing error
	switch r := d.Request.(type) {
	case *kusciapb.CreateServingRequest:
		d.AffinityMode = r.GetAffinityMode()
		spec, _, err = convert.NewSpec(r, readImages(ctx, api, &missing))
	case *kusciapb.UpdateServingRequest:
		spec, _, err = convert.ChangedSpec(ptr.Deref(current.Spec, spec), r, readImages(ctx, api, &missing))
	}
	body := d.Body
	if err == nil && d.Request != nil {
		body, err = json.Marshal(spec)
	}
	if err != nil {
		return result, cmp.Or(missing, err)
	}
	if d.AffinityMode != "" {
		params.AffinityMode = &d.AffinityMode
	}
	result, err = manifest.ReadResult(api.PutServingWithBody(ctx, d.Name, params, apiclient.YAMLBody,
		bytes.NewReader(body)))
	if result.Outcome == "replaced" {
		result.Outcome = "updated"
	}
	return result, err
}

// readImages returns the function that reads the AppImages of parties. One that doesn't exist is left out, since the
// request may replace it; missing is set to the API's error then.
func readImages(ctx context.Context, api *client.Client, missing *error) convert.ReadImages {
	return func(parties []kuscia.Party) (convert.Images, error) {
		images := convert.Images{}
		for _, p := range parties {
			if _, known := images[p.AppImageRef]; known || p.AppImageRef == "" {
				continue
			}
			image, err := apiclient.Read[client.AppImage](api.GetAppImage(ctx, p.AppImageRef))
			if problem := (*apiclient.ProblemError)(nil); errors.As(err, &problem) &&
				problem.Status == http.StatusNotFound {
				*missing = err
				continue
			}
			if err != nil {
				return nil, err
			}
			images[p.AppImageRef] = image.Value.Spec
		}
		return images, nil
	}
}
