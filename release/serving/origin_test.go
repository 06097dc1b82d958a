package serving

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

func TestFitsState(t *testing.T) {
	t.Parallel()
	of := func(served, deleted bool) *kuscia.KusciaDeployment {
		kd := &kuscia.KusciaDeployment{ObjectMeta: metav1.ObjectMeta{Name: "s1", UID: "0123456789", Generation: 3}}
		if served {
			kd.Status.Served = &kuscia.Served{}
		}
		if deleted {
			kd.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}
		return kd
	}
	for reason, c := range map[string]struct {
		kind       string
		generation int64
		id         string
		kd         *kuscia.KusciaDeployment
		want       string
	}{
		"a first version":                     {KindCreate, 3, "serving/s1/3", of(false, false), ""},
		"a new version":                       {KindUpdate, 3, "serving/s1/3", of(true, false), ""},
		"an earlier serving is being deleted": {KindUpdate, 3, "serving/s1/3-01234567", of(true, false), ""},
		"a repair":                            {KindRecreate, 3, "serving/s1/3", of(true, false), ""},
		"a deletion":                          {KindDelete, 3, "serving/s1/3", of(true, true), ""},
		"a generation to come":                {KindUpdate, 4, "serving/s1/4", of(true, false), "and it has 3"},
		"another workflow ID":                 {KindUpdate, 3, "serving/s1/4", of(true, false), "has the workflow ID"},
		"a deletion of what is kept":          {KindDelete, 3, "serving/s1/3", of(true, false), "needs no delete"},
		"an update of what is deleted":        {KindUpdate, 3, "serving/s1/3", of(true, true), "needs no update"},
		"a creation of what serves":           {KindCreate, 3, "serving/s1/3", of(true, false), "needs no create"},
		"a repair of what never served":       {KindRecreate, 3, "serving/s1/3", of(false, false), "needs no recreate"},
		"no kind of operation":                {"evil", 3, "serving/s1/3", of(true, false), "needs no evil"},
	} {
		got := Input{Kind: c.kind, Generation: c.generation}.FitsState(c.kd, c.id)
		if c.want == "" {
			require.Empty(t, got, reason)
		} else {
			require.Contains(t, got, c.want, reason)
		}
	}
}

func TestInputDiffers(t *testing.T) {
	t.Parallel()
	packed := func(image string) (pack []byte, digest string) {
		v := Version{ID: "s1", AppImages: map[string]kuscia.AppImageSpec{
			"app": {Image: kuscia.AppImageInfo{Name: image}}}}
		pack, err := v.Pack()
		require.NoError(t, err)
		digest, err = v.Digest()
		require.NoError(t, err)
		return pack, digest
	}
	parties := func(domain, queue string) []PartyTarget { return []PartyTarget{{Domain: domain, Queue: queue}} }
	declared := Input{ID: "s1", Kind: KindUpdate, Generation: 3, Parties: parties("bob", "q")}
	declared.Target, declared.TargetDigest = packed("app")
	declared.Previous, declared.PreviousDigest = packed("old")
	evil, evilDigest := packed("registry.evil.example/miner")

	started := declared
	started.Cause, started.UnreachableBudgetSeconds, started.Continued = "text", 120, &Continued{}
	require.Empty(t, started.Differs(declared), "what is not compared")
	for reason, forge := range map[string]func(in *Input){
		"another version with its digest":    func(in *Input) { in.Target, in.TargetDigest = evil, evilDigest },
		"another version with the digest":    func(in *Input) { in.Target = evil },
		"another digest":                     func(in *Input) { in.TargetDigest = evilDigest },
		"another version to return to":       func(in *Input) { in.Previous = evil },
		"no version":                         func(in *Input) { in.Target = nil },
		"what is no version":                 func(in *Input) { in.Target = []byte("x") },
		"another queue":                      func(in *Input) { in.Parties = parties("bob", "evil") },
		"another party":                      func(in *Input) { in.Parties = parties("eve", "q") },
		"no approval":                        func(in *Input) { in.Policy.Order = OrderParallel },
		"another engine":                     func(in *Input) { in.Engine.UID = "evil" },
		"another generation (fencing token)": func(in *Input) { in.Generation = 99 },
	} {
		in := declared
		forge(&in)
		require.NotEmpty(t, in.Differs(declared), reason)
	}
}
