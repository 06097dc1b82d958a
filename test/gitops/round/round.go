// Package round is the common part of the programs in test/gitops. Each simulates a GitOps controller with the library
// of a real one, and runs a round on request.
//
// A program reads one command per line from its input: "sync" applies the manifest as the self-healing controller does;
// "diff" reports what a sync would change, and changes nothing; "health" reports the controller's view of the objects.
// The manifest, a JSON List, is read again for every round: writing it is like a commit. Each round is answered by a
// line of JSON. The program ends at the end of its input.
package round

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Object is an object of the manifest.
type Object = *unstructured.Unstructured

// Result is the result of a round for one object.
type Result struct {
	// Object is its kind and name.
	Object string `json:"object"`
	// Changed is true if a sync wrote the object because it differed, or if a diff found a difference. It is not set
	// for health.
	Changed bool `json:"changed"`
	// Message is the library's report about the object.
	Message string `json:"said,omitempty"`
}

// Answer is the line of JSON that answers a round.
type Answer struct {
	Do      string   `json:"do"`
	Results []Result `json:"results"`
	Error   string   `json:"error,omitempty"`
}

// Controller runs the rounds.
type Controller interface {
	// Ignore adds a field of a kind, as a JSON pointer, that must not be changed.
	Ignore(kind, pointer string)
	Open(kubeconfig string) error
	Sync(objects []Object) ([]Result, error)
	Diff(objects []Object) ([]Result, error)
	Health(objects []Object) ([]Result, error)
}

// Main runs the program of a controller. Its own flags must be declared before.
func Main(c Controller) {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of the cluster")
	manifest := flag.String("manifest", "", "file of the desired objects, a JSON List")
	flag.Func("ignore", "field that the controller ignores, like Deployment/spec/paused; can be repeated",
		func(field string) error {
			kind, pointer, found := strings.Cut(field, "/")
			if !found {
				return fmt.Errorf("%q is not a kind and a field: want Kind/path", field)
			}
			c.Ignore(kind, "/"+pointer)
			return nil
		})
	flag.Parse()
	err := c.Open(*kubeconfig)
	if err == nil {
		err = serve(c, *manifest, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Name returns the name of an object in a Result.
func Name(o Object) string { return o.GetKind() + "/" + o.GetName() }

// serve runs rounds until the input ends.
func serve(c Controller, manifest string, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	write := json.NewEncoder(out)
	for lines.Scan() {
		if err := write.Encode(answer(c, manifest, lines.Text())); err != nil {
			return err
		}
	}
	return lines.Err()
}

func answer(c Controller, manifest, do string) Answer {
	a := Answer{Do: do}
	objects, err := read(manifest)
	if err == nil {
		switch do {
		case "sync":
			a.Results, err = c.Sync(objects)
		case "diff":
			a.Results, err = c.Diff(objects)
		case "health":
			a.Results, err = c.Health(objects)
		default:
			err = fmt.Errorf("%q is not a command: want sync, diff or health", do)
		}
	}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

func read(manifest string) ([]Object, error) {
	raw, err := os.ReadFile(manifest)
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []Object `json:"items"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", manifest, err)
	}
	return list.Items, nil
}
