package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/workflows"
)

// attributesPatience is how long Temporal may take to know a search attribute that was added to it: its caches are read anew every minute at most.
const attributesPatience = 90 * time.Second

// ensureSearchAttributes adds what is missing: a workflow that writes an unknown search attribute would fail its task for ever. Where this process may
// not ask for the list of them, or not add to it, it is enough that they are there.
func ensureSearchAttributes(ctx context.Context, c client.Client, namespace string) error {
	known, err := c.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if mayNot(err) {
		return unlisted(ctx, c, namespace)
	}
	if err != nil {
		return fmt.Errorf("search attributes of Temporal namespace %s: %w", namespace, err)
	}
	missing := map[string]enumspb.IndexedValueType{}
	for _, key := range workflows.SearchAttributes {
		have, ok := known.GetCustomAttributes()[key.GetName()]
		if ok && have != key.GetValueType() {
			return fmt.Errorf("search attribute %s of Temporal namespace %s is a %s, not a %s: remove it", key.GetName(), namespace, have,
				key.GetValueType())
		}
		if !ok {
			missing[key.GetName()] = key.GetValueType()
		}
	}
	if len(missing) == 0 { // somebody may have added them just now
		return awaitSearchAttributes(ctx, c, namespace, attributeNames(workflows.SearchAttributes))
	}
	_, err = c.OperatorService().AddSearchAttributes(ctx,
		&operatorservice.AddSearchAttributesRequest{Namespace: namespace, SearchAttributes: missing})
	switch {
	case mayNot(err):
		return lacking(namespace, missing, err)
	case err != nil:
		return fmt.Errorf("cannot add search attributes %v to Temporal namespace %s: %w", slices.Sorted(maps.Keys(missing)), namespace, err)
	}
	return awaitSearchAttributes(ctx, c, namespace, slices.Sorted(maps.Keys(missing)))
}

// unlisted looks for the search attributes where they can't be listed.
func unlisted(ctx context.Context, c client.Client, namespace string) error {
	err := attributesKnown(ctx, c, namespace, attributeNames(workflows.SearchAttributes))
	var unknown *serviceerror.InvalidArgument
	if errors.As(err, &unknown) {
		all := map[string]enumspb.IndexedValueType{}
		for _, key := range workflows.SearchAttributes {
			all[key.GetName()] = key.GetValueType()
		}
		return lacking(namespace, all, err)
	}
	if err != nil {
		return fmt.Errorf("search attributes of Temporal namespace %s: %w", namespace, err)
	}
	return nil
}

// lacking is the error of attributes that somebody else has to add.
func lacking(namespace string, missing map[string]enumspb.IndexedValueType, because error) error {
	return fmt.Errorf("Temporal namespace %s lacks search attributes, and this process may not add them: grant it the right, or have an administrator run `%s`: %w", //nolint:staticcheck // a name
		namespace, createCommand(namespace, missing), because)
}

// mayNot says whether Temporal refuses a call to this process, or to all: a service may keep what operators do to itself.
func mayNot(err error) bool {
	var denied *serviceerror.PermissionDenied
	var missing *serviceerror.Unimplemented
	return errors.As(err, &denied) || errors.As(err, &missing)
}

func attributeNames(keys []temporal.SearchAttributeKey) []string {
	var names []string
	for _, key := range keys {
		names = append(names, key.GetName())
	}
	return names
}

// createCommand adds search attributes by Temporal's own command line.
func createCommand(namespace string, missing map[string]enumspb.IndexedValueType) string {
	var b strings.Builder
	fmt.Fprintf(&b, "temporal operator search-attribute create --namespace %s", namespace)
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		fmt.Fprintf(&b, " --name %s --type %s", name, missing[name])
	}
	return b.String()
}

// attributesKnown asks for no workflow by these attributes, which is refused when one of them is unknown.
func attributesKnown(ctx context.Context, c client.Client, namespace string, names []string) error {
	query := strings.Join(names, " IS NULL OR ") + " IS NULL"
	_, err := c.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: namespace, Query: query})
	return err
}

// awaitSearchAttributes waits until Temporal's frontend has heard of attributes that were added: until then it refuses releases that carry them.
func awaitSearchAttributes(ctx context.Context, c client.Client, namespace string, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, attributesPatience)
	defer cancel()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		err := attributesKnown(ctx, c, namespace, names)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("search attributes %v are there in Temporal namespace %s, but queries did not know them %s later: %w", names, namespace,
				attributesPatience, err)
		case <-again.C:
		}
	}
}
