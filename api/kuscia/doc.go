// Package kuscia speaks Kuscia's API, so that a client of Kuscia works unmodified: servings, AppImages and health over HTTP, as JSON or protobuf,
// and over gRPC.
//
// proto is the source of the messages, from which kusciapb is generated. A request is judged here and then written to the home cluster as a
// KusciaDeployment or an AppImage, whole or not at all; carrying it out is the business of whoever watches those objects.
package kuscia

//go:generate protogen proto . slipway.io/slipway/api/kuscia
