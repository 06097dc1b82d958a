package rollout

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/manifest"
	"slipway.io/slipway/cli/render"
)

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
	r.Place.Flags(command)
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
	// source is the document of the file that findings are located in; nil without a file.
	source []byte
	file   string
	// below is the field that the document was put under, "" when it is the body itself.
	below string
}

// read makes the body of the file and the flags; person and key go into it as well.
func (r *startRequest) read(a *app.App, person app.Who, key string) (requestBody, error) {
	body, fields, err := r.readBase(a)
	if err != nil {
		return body, err
	}
	if err := r.complete(a, fields); err != nil {
		return body, err
	}
	if _, own := fields["actor"]; !own || person.Actor != "" {
		fields["actor"] = person.Name()
	}
	if person.Reason != "" {
		fields["reason"] = person.Reason
	}
	if key != "" {
		fields["key"] = key
	}
	if body.text, err = json.Marshal(fields); err != nil {
		return body, fmt.Errorf("the request cannot be written as JSON: %w", err)
	}
	return body, nil
}

// located gives findings on the body the lines of the file that it came from.
func (b requestBody) located(problems []client.FieldProblem) []client.FieldProblem {
	for n := range problems {
		problems[n].Line = 0
		if b.below != "" {
			problems[n].Field = strings.TrimPrefix(problems[n].Field, b.below+".")
		}
	}
	if b.source == nil {
		return problems
	}
	return manifest.Locate(b.source, problems)
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
	parts := manifest.SplitDocuments(text)
	if len(parts) != 1 {
		return requestBody{}, nil, fmt.Errorf("%s holds %s: a rollout is started from one at a time", shown, render.Count(len(parts), "document"))
	}
	body := requestBody{source: parts[0], file: shown}
	fields := map[string]any{}
	if err := yaml.UnmarshalStrict(parts[0], &fields); err != nil {
		return body, nil, fmt.Errorf("%s: %s", shown, strings.TrimPrefix(render.OneLine(err.Error()), "error "))
	}
	if fields["kind"] == "Rollout" {
		body.below = "rollout"
		fields = map[string]any{"rollout": fields}
	}
	return body, fields, nil
}

// flagValue is what a flag says on a field of the body.
type flagValue struct {
	field, flag string
	value       any
}

// complete adds what the flags say. A flag may complete a file, and set images anew; what contradicts the file is refused.
func (r *startRequest) complete(a *app.App, fields map[string]any) error {
	added := []flagValue{
		{"party", "party", r.Party}, {"namespace", "namespace", r.namespaceOf(fields)}, {"name", "name", r.name}, {"rolloutId", "rollout-id", r.rolloutID},
	}
	if r.workload != "" {
		ref, err := app.ParseWorkload(r.workload)
		if err != nil {
			return err
		}
		added = append(added, flagValue{"workloadRef", "workload", map[string]any{"apiVersion": ref.APIVersion, "kind": ref.Kind, "name": ref.Name}})
	}
	for _, part := range []struct{ field, flag, file string }{
		{"templatePatch", "patch-file", r.patchFile}, {"strategy", "strategy-file", r.strategyFile}, {"policy", "policy-file", r.policyFile},
	} {
		value, err := readFields(a, part.file)
		if err != nil {
			return err
		}
		if value != nil {
			added = append(added, flagValue{part.field, part.flag, value})
		}
	}
	for _, one := range added {
		if one.value == "" {
			continue
		}
		if old, there := fields[one.field]; there && fmt.Sprint(old) != fmt.Sprint(one.value) {
			return app.Usagef("the file has its own %s, and --%s is given: leave one of them out", one.field, one.flag)
		}
		fields[one.field] = one.value
	}
	if r.supersede {
		fields["supersede"] = true
	}
	return r.addImages(fields)
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
func readFields(a *app.App, file string) (map[string]any, error) {
	if file == "" {
		return nil, nil
	}
	text, shown, err := manifest.ReadFile(a, file)
	if err != nil {
		return nil, err
	}
	fields := map[string]any{}
	if err := yaml.UnmarshalStrict(text, &fields); err != nil {
		return nil, fmt.Errorf("%s: %s", shown, render.OneLine(err.Error()))
	}
	if len(fields) == 0 {
		return nil, fmt.Errorf("%s is empty", shown)
	}
	return fields, nil
}
