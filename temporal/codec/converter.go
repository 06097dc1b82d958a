package codec

import (
	"context"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/sealed"
)

// NewDataConverter returns the default data converter with one difference: a workflow that gets a payload which this
// process cannot decrypt stops there, until a process with the key continues it. The SDK would fail it permanently with
// a decoding error.
func NewDataConverter() converter.DataConverter {
	return blockingConverter{DataConverter: converter.GetDefaultDataConverter()}
}

type blockingConverter struct {
	converter.DataConverter
	inWorkflow bool
}

var _ workflow.ContextAware = blockingConverter{}

// WithWorkflowContext returns the converter for workflow code.
func (c blockingConverter) WithWorkflowContext(workflow.Context) converter.DataConverter {
	c.inWorkflow = true
	return c
}

// WithContext returns the converter for all other code, where an error suffices.
func (c blockingConverter) WithContext(context.Context) converter.DataConverter { return c }

// FromPayload decodes one value.
func (c blockingConverter) FromPayload(payload *commonpb.Payload, into any) error {
	c.panicIfSealed(payload)
	return c.DataConverter.FromPayload(payload, into)
}

// FromPayloads decodes several values.
func (c blockingConverter) FromPayloads(payloads *commonpb.Payloads, into ...any) error {
	c.panicIfSealed(payloads.GetPayloads()...)
	return c.DataConverter.FromPayloads(payloads, into...)
}

// panicIfSealed panics on an encrypted payload in workflow code: the SDK then fails the workflow task and retries it.
func (c blockingConverter) panicIfSealed(payloads ...*commonpb.Payload) {
	for _, payload := range payloads {
		if c.inWorkflow && isSealed(payload) {
			panic(sealed.Unreadable)
		}
	}
}
