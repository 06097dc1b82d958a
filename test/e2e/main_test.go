package e2e

import (
	"testing"

	"slipway.io/slipway/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
