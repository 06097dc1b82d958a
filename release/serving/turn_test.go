package serving_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"slipway.io/slipway/release/serving"
)

func TestTurns(t *testing.T) {
	t.Parallel()
	order := []struct {
		reason string
		turn   serving.Turn
	}{
		{"what nobody has written comes before all", serving.Turn{}},
		{"the creation", serving.Turn{Generation: 1, Started: 100}},
		{"what somebody deleted is put back: another operation of that generation", serving.Turn{Generation: 1, Started: 200}},
		{"an update, whatever the clock says", serving.Turn{Generation: 2, Started: 150}},
		{"its way back", serving.Turn{Generation: 2, Started: 150, Back: true}},
		{"another try of that generation", serving.Turn{Generation: 2, Started: 300}},
	}
	for i, a := range order {
		for j, b := range order {
			require.Equal(t, i > j, a.turn.After(b.turn), "%s, and %s", a.reason, b.reason)
		}
	}
}

func TestTurnIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	object := func(text string) metav1.Object {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{serving.AnnotationTurn: text}}}
	}
	rapid.Check(t, func(t *rapid.T) {
		turn := serving.Turn{Generation: rapid.Int64Range(1, 1<<62).Draw(t, "generation"), Started: rapid.Int64Range(0, 1<<62).Draw(t, "started"), Back: rapid.Bool().Draw(t, "back")}
		require.Equal(t, turn, serving.TurnOf(object(turn.String())))
	})
	for _, text := range []string{"", "7", "x.1.0", "1.9223372036854775808.0"} {
		require.Equal(t, serving.Turn{}, serving.TurnOf(object(text)), "%q", text)
	}
}
