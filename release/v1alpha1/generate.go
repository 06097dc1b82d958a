package v1alpha1

//go:generate controller-gen object paths=./... paths=../catalog paths=../plan
//go:generate controller-gen crd paths=. output:crd:dir=../../deploy/crds
