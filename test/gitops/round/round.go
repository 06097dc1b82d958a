// Package round is what the programs of test/gitops have in common: each plays a GitOps controller with the library of a real one, and does a
// round whenever it is told to.
//
// It reads a word a line from its input: "sync" brings the cluster to what the manifest says, as the controller does that heals; "diff" tells what a
// sync would change, and changes nothing; "health" tells how the controller sees the objects. The manifest, a JSON List, is read anew for every round:
// writing it is a commit. Each round is answered by a line of JSON. The end of the input ends the program.
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

// Object is an object of the manifest, as it stands there.
type Object = *unstructured.Unstructured

// Result is what a round made of one object.
type Result struct {
	// Object is its kind and name.
	Object string `json:"object"`
	// Changed says that it was not as the manifest says, and was written; in a diff, that it would be; nothing of its health.
	Changed bool `json:"changed"`
	// Said is what the library says about it.
	Said string `json:"said,omitempty"`
}

// Answer is the line that answers a round.
type Answer struct {
	Do      string   `json:"do"`
	Results []Result `json:"results"`
	Error   string   `json:"error,omitempty"`
}

// Controller does a round.
type Controller interface {
	// Ignore takes a field of a kind's objects that is to be left as it is, as a JSON pointer.
	Ignore(kind, pointer string)
	Open(kubeconfig string) error
	Sync(objects []Object) ([]Result, error)
	Diff(objects []Object) ([]Result, error)
	Health(objects []Object) ([]Result, error)
}

// Main is the program of a controller. The flags that are its own are declared by then.
func Main(c Controller) {
	kubeconfig := flag.String("kubeconfig", "", "whose cluster")
	manifest := flag.String("manifest", "", "what the objects are to be: a JSON List")
	flag.Func("ignore", "a field that the controller is told to ignore, like Deployment/spec/paused; can be repeated", func(field string) error {
		kind, pointer, found := strings.Cut(field, "/")
		if !found {
			return fmt.Errorf("%q is no kind and field", field)
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

// Name is how a Result calls an object.
func Name(o Object) string { return o.GetKind() + "/" + o.GetName() }

// serve does rounds until the input ends.
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
			err = fmt.Errorf("%q is no round: want sync, diff or health", do)
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
