package codec

import (
	"context"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/sealed"
)

// NewDataConverter is a client's own data converter, but that a workflow which meets a payload that this process can't open stops there, until a process with
// the key goes on with it. The SDK would fail it for good, as one that was given something else than it takes.
func NewDataConverter() converter.DataConverter {
	return careful{DataConverter: converter.GetDefaultDataConverter()}
}

type careful struct {
	converter.DataConverter
	inWorkflow bool
}

var _ workflow.ContextAware = careful{}

// WithWorkflowContext is for workflow code.
func (c careful) WithWorkflowContext(workflow.Context) converter.DataConverter {
	c.inWorkflow = true
	return c
}

// WithContext is for everything else, where an error is enough.
func (c careful) WithContext(context.Context) converter.DataConverter { return c }

// FromPayload reads one value.
func (c careful) FromPayload(payload *commonpb.Payload, into any) error {
	c.stop(payload)
	return c.DataConverter.FromPayload(payload, into)
}

// FromPayloads reads several values.
func (c careful) FromPayloads(payloads *commonpb.Payloads, into ...any) error {
	c.stop(payloads.GetPayloads()...)
	return c.DataConverter.FromPayloads(payloads, into...)
}

// stop panics: the SDK fails the workflow's task then, and makes it again.
func (c careful) stop(payloads ...*commonpb.Payload) {
	for _, payload := range payloads {
		if c.inWorkflow && isSealed(payload) {
			panic(sealed.Unreadable)
		}
	}
}
